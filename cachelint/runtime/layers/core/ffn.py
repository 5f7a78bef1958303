"""Gated feed-forward module."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.layers.activations.geglu import GeGLU
from cachelint.runtime.layers.activations.swiglu import SwiGLU
from cachelint.runtime.layers.core.dense import Dense
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept

Gate = Literal["swiglu", "geglu"]


class FFN(SaverAware, Node):
    """``w2(act(w1(x)) * w3(x))``: ``[..., In]`` through ``[..., Hidden]`` to ``[..., Out]``, silu or gelu as ``act``.

    The two projections are joined and saved as one tensor, the live input of the gate; the gated result, the live input
    of w2, is saved too.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        *,
        gate: Gate = "swiglu",
        bias: bool = False,
        init: Init | None = None,
    ) -> None:
        self.w1 = Dense(in_features, hidden_features, bias=bias, init=init)
        self.w3 = Dense(in_features, hidden_features, bias=bias, init=init)
        self.w2 = Dense(hidden_features, out_features, bias=bias, init=init)
        self.gate: Node = SwiGLU() if gate == "swiglu" else GeGLU()
        self.projections: Tensor | None = None
        self.gated: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the module's output."""
        projections = torch.cat([self.w1(x), self.w3(x)], -1)
        gated = self.gate(projections)
        self.projections = projections if self.training else None
        self.gated = gated if self.training else None
        self.save_for_backward(self.projections, self.gated)
        return self.w2.forward(gated)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x."""
        (dgated,) = self.w2.backward(grad, kept(self.gated, self))
        (dprojections,) = self.gate.backward(dgated, kept(self.projections, self))
        d1, d3 = dprojections.chunk(2, -1)
        (dx1,) = self.w1.backward(d1, x)
        (dx3,) = self.w3.backward(d3, x)
        return (dx1 + dx3,)


def reference(node: FFN, x: Tensor) -> Tensor:
    """Return the same formula in plain torch operators."""

    def dense(layer: Dense, value: Tensor) -> Tensor:
        product = value @ layer.linear.weight.value
        return product if layer.bias is None else product + layer.bias.value

    a, b = dense(node.w1, x), dense(node.w3, x)
    if isinstance(node.gate, SwiGLU):
        return dense(node.w2, torch.nn.functional.silu(a) * b)
    return dense(node.w2, torch.nn.functional.gelu(a, approximate="tanh") * b)


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[FFN, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = FFN(3, 4, 2, bias=True, init=init)
    init.jitter(node)
    return node, (init.normal(2, 5, 3),)


def example_geglu(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[FFN, tuple[Tensor, ...]]:
    """Return a node with the gelu gate, without biases, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    return FFN(4, 5, 3, gate="geglu", init=init), (init.normal(6, 4),)
