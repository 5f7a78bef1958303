"""Linear map with bias."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cachelint.runtime import Node, Parameter
from cachelint.runtime.layers.core.linear import Linear
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.numerics import sum_leading


class Affine(Node):
    """``x @ weight + bias``: ``[..., In]`` to ``[..., Out]``; the bias is optional. Nothing is saved."""

    def __init__(self, in_features: int, out_features: int, *, bias: bool = True, init: Init | None = None) -> None:
        init = init or Init()
        self.linear = Linear(in_features, out_features, init=init)
        self.bias = Parameter(init.full((out_features,), 0.0), "bias") if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the map of x."""
        return F.linear(x, self.linear.weight.value.mT, None if self.bias is None else self.bias.value)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x."""
        if self.bias is not None:
            self.bias.accumulate(sum_leading(grad))
        return self.linear.backward(grad, x)


def reference(node: Affine, x: Tensor) -> Tensor:
    """Return the same formula in plain torch operators."""
    z = torch.einsum("...i,io->...o", x, node.linear.weight.value)
    return z if node.bias is None else z + node.bias.value


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Affine, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = Affine(3, 4, init=init)
    init.jitter(node)
    return node, (init.normal(2, 5, 3),)


def example_without_bias(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[Affine, tuple[Tensor, ...]]:
    """Return a node without bias and an input for it."""
    init = Init.seeded(seed, device, dtype)
    return Affine(4, 2, bias=False, init=init), (init.normal(3, 4),)
