"""Linear map."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, Parameter
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.numerics import rows


class Linear(Node):
    """``y = x @ weight``: ``[..., In]`` to ``[..., Out]``, the weight ``[In, Out]``."""

    def __init__(self, in_features: int, out_features: int, *, init: Init | None = None) -> None:
        self.weight = Parameter((init or Init()).fan_in(in_features, out_features), "weight")

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x @ weight``."""
        return x @ self.weight.value

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return ``grad @ weight^T``; the weight gets ``x^T @ grad``."""
        self.weight.accumulate(rows(x).mT @ rows(grad))
        return (grad @ self.weight.value.mT,)


def reference(node: Linear, x: Tensor) -> Tensor:
    """Return the same map in plain torch operators."""
    return torch.einsum("...i,io->...o", x, node.weight.value)


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Linear, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    return Linear(3, 4, init=init), (init.normal(2, 5, 3),)
