"""The error function."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cachelint.runtime.layers.activations.base_activation import BaseActivation
from cachelint.runtime.layers.init import Init


class Erf(BaseActivation):
    """``erf(x)``."""

    def __init__(self) -> None:
        super().__init__(torch.erf, erf_derivative)


def erf_derivative(x: Tensor) -> Tensor:
    """``2 / sqrt(pi) * exp(-x^2)``."""
    return torch.exp(-x.square()) * (2 / math.sqrt(math.pi))


def reference(node: Erf, x: Tensor) -> Tensor:
    """Return the same function in other torch operators."""
    return 1 - torch.erfc(x)


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Erf, tuple[Tensor]]:
    """Return a node and an input for it."""
    return Erf(), (Init.seeded(seed, device, dtype).normal(2, 3),)
