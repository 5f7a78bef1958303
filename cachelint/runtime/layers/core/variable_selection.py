"""Soft selection of input variables."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.layers.activations.gelu import gelu, gelu_backward
from cachelint.runtime.layers.activations.softmax import softmax_backward
from cachelint.runtime.layers.core.dense import Dense
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept


class VariableSelection(SaverAware, Node):
    """``x * N * softmax(gelu(x @ w1 + b1) @ w2 + b2)`` over the last axis, N wide.

    Saves the pre-activation of the hidden layer, ``[..., Hidden]``, and the softmax, ``[..., N]``; gelu is derived
    from the former. Source: the variable selection of Lim et al., "Temporal Fusion Transformers", arXiv:1912.09363,
    simplified.
    """

    def __init__(self, features: int, hidden_features: int, *, init: Init | None = None) -> None:
        self.features = features
        self.hidden = Dense(features, hidden_features, init=init)
        self.score = Dense(hidden_features, features, init=init)
        self.last_hidden: Tensor | None = None
        self.last_weights: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted x; the weights average to one."""
        hidden = self.hidden(x)
        weights = torch.softmax(self.score(gelu(hidden)), -1)
        self.last_hidden = hidden if self.training else None
        self.last_weights = weights if self.training else None
        self.save_for_backward(self.last_hidden, self.last_weights)
        return x * weights * self.features

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x."""
        hidden, weights = kept(self.last_hidden, self), kept(self.last_weights, self)
        scaled = grad * self.features
        (dactive,) = self.score.backward(softmax_backward(scaled * x, weights), gelu(hidden))
        (dx,) = self.hidden.backward(gelu_backward(dactive, hidden), x)
        return (scaled * weights + dx,)


def reference(node: VariableSelection, x: Tensor) -> Tensor:
    """Return the same formula in plain torch operators."""

    def dense(layer: Dense, value: Tensor) -> Tensor:
        product = value @ layer.linear.weight.value
        return product if layer.bias is None else product + layer.bias.value

    active = torch.nn.functional.gelu(dense(node.hidden, x), approximate="tanh")
    return x * node.features * torch.softmax(dense(node.score, active), -1)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[VariableSelection, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = VariableSelection(3, 4, init=init)
    init.jitter(node)
    return node, (init.normal(2, 3),)
