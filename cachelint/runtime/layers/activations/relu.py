"""Rectified linear unit."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime.layers.activations.base_activation import BaseActivation
from cachelint.runtime.layers.init import Init


class ReLU(BaseActivation):
    """``max(0, x)``, with the derivative zero at zero."""

    def __init__(self) -> None:
        super().__init__(torch.relu, relu_derivative)


def relu_derivative(x: Tensor) -> Tensor:
    """One where x is positive, else zero."""
    return (x > 0).to(x.dtype)


def reference(node: ReLU, x: Tensor) -> Tensor:
    """Return the same function in plain torch operators."""
    return x.clamp(min=0)


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[ReLU, tuple[Tensor]]:
    """Return a node and an input for it."""
    return ReLU(), (Init.seeded(seed, device, dtype).normal(2, 3),)
