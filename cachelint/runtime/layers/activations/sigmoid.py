"""Logistic function."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept
from cachelint.runtime.layers.numerics import wide


class Sigmoid(SaverAware, Node):
    """``y = 1 / (1 + exp(-x))``, finite for every finite x. Any shape. Saves y."""

    def __init__(self) -> None:
        self.last_output: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the activation of x."""
        y = torch.sigmoid(x)
        self.last_output = y if self.training else None
        self.save_for_backward(self.last_output)
        return y

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return ``grad * y * (1 - y)``."""
        return (sigmoid_backward(grad, kept(self.last_output, self)),)


def sigmoid_backward(grad: Tensor, y: Tensor) -> Tensor:
    """The gradient of x, given ``y = sigmoid(x)`` and its gradient; in the dtype of y."""
    return (grad * (wide(y) * (1 - wide(y)))).to(y.dtype)


def reference(node: Sigmoid, x: Tensor) -> Tensor:
    """Return the same function in other torch operators."""
    return 0.5 * (1 + torch.tanh(0.5 * x))


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Sigmoid, tuple[Tensor]]:
    """Return a node and an input for it."""
    return Sigmoid(), (Init.seeded(seed, device, dtype).normal(2, 3),)
