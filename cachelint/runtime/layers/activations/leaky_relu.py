"""Leaky rectified linear unit."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cachelint.runtime import Node
from cachelint.runtime.layers.init import Init


class LeakyReLU(Node):
    """``x`` where x is positive, else ``alpha * x``. Any shape."""

    def __init__(self, alpha: float = 0.01) -> None:
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        """Return the activation of x."""
        return F.leaky_relu(x, self.alpha)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return ``grad`` where x is positive, else ``alpha * grad``."""
        return (torch.where(x > 0, grad, grad * self.alpha),)


def reference(node: LeakyReLU, x: Tensor) -> Tensor:
    """Return the same function in plain torch operators."""
    return torch.where(x > 0, x, x * node.alpha)


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[LeakyReLU, tuple[Tensor]]:
    """Return a node and an input for it."""
    return LeakyReLU(0.1), (Init.seeded(seed, device, dtype).normal(2, 3),)
