"""Linear map with bias and activation."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, Parameter, SaverAware
from cachelint.runtime.layers.activations.gelu import Gelu
from cachelint.runtime.layers.activations.sigmoid import Sigmoid
from cachelint.runtime.layers.core.linear import Linear
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept
from cachelint.runtime.layers.numerics import sum_leading


class Dense(SaverAware, Node):
    """``activation(x @ weight + bias)``: ``[..., In]`` to ``[..., Out]``; bias and activation are optional.

    The activation's live input is the pre-activation, which x alone gives back only through another matrix product:
    it is saved, if there is an activation.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        activation: Node | None = None,
        init: Init | None = None,
    ) -> None:
        init = init or Init()
        self.linear = Linear(in_features, out_features, init=init)
        self.bias = Parameter(init.full((out_features,), 0.0), "bias") if bias else None
        self.activation = activation
        self.pre_activation: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the activation of the map."""
        z = affine(x, self.linear.weight.value, None if self.bias is None else self.bias.value)
        if self.activation is None:
            self.pre_activation = None
            return z
        self.pre_activation = z if self.training else None
        self.save_for_backward(self.pre_activation)
        y: Tensor = self.activation(z)
        return y

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x."""
        if self.activation is not None:
            (grad,) = self.activation.backward(grad, kept(self.pre_activation, self))
        if self.bias is not None:
            self.bias.accumulate(sum_leading(grad))
        return self.linear.backward(grad, x)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x @ weight + bias``."""
    return torch.nn.functional.linear(x, weight.mT, bias)


def reference(node: Dense, x: Tensor) -> Tensor:
    """Return the same formula in plain torch operators, for the activations that torch has."""
    z = torch.einsum("...i,io->...o", x, node.linear.weight.value)
    if node.bias is not None:
        z = z + node.bias.value
    if isinstance(node.activation, Gelu):
        return torch.nn.functional.gelu(z, approximate=node.activation.approximate)
    if isinstance(node.activation, Sigmoid):
        return 1 / (1 + torch.exp(-z))
    return z


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Dense, tuple[Tensor]]:
    """Return a node with a sigmoid and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = Dense(3, 4, activation=Sigmoid(), init=init)
    init.jitter(node)
    return node, (init.normal(2, 5, 3),)


def example_linear(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[Dense, tuple[Tensor, ...]]:
    """Return a node without an activation, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = Dense(3, 4, init=init)
    init.jitter(node)
    return node, (init.normal(2, 5, 3),)


def example_gelu(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[Dense, tuple[Tensor, ...]]:
    """Return a node with a GELU, whose derivative depends on where it is taken, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = Dense(4, 4, activation=Gelu(), init=init)
    init.jitter(node)
    return node, (init.normal(5, 4),)
