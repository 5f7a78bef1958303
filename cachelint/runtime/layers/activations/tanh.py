"""Hyperbolic tangent."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime.layers.activations.base_activation import BaseActivation
from cachelint.runtime.layers.init import Init


class Tanh(BaseActivation):
    """``tanh(x)``, differentiated at the pre-activation x."""

    def __init__(self) -> None:
        super().__init__(torch.tanh, tanh_derivative)


def tanh_derivative(x: Tensor) -> Tensor:
    """``1 - tanh(x)^2``."""
    return 1 - x.tanh().square()


def reference(node: Tanh, x: Tensor) -> Tensor:
    """Return the same function in other torch operators."""
    return 2 * torch.sigmoid(2 * x) - 1


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Tanh, tuple[Tensor]]:
    """Return a node and an input for it."""
    return Tanh(), (Init.seeded(seed, device, dtype).normal(2, 3),)
