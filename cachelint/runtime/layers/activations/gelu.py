"""Gaussian error linear unit."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from cachelint.runtime import Node
from cachelint.runtime.layers import kernels
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.numerics import wide

Approximation = Literal["tanh", "none"]

CUBIC = 0.044715
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


class Gelu(Node):
    """``x * Phi(x)`` with Phi the normal distribution, or its tanh approximation (the default). Any shape.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", arXiv:1606.08415.
    """

    def __init__(self, approximate: Approximation = "tanh") -> None:
        if approximate not in ("tanh", "none"):
            raise ValueError(f"approximate must be 'tanh' or 'none', not {approximate!r}")
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """Return the activation of x."""
        return gelu(x, self.approximate)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x."""
        return (gelu_backward(grad, x, self.approximate),)


def gelu(x: Tensor, approximate: Approximation = "tanh") -> Tensor:
    """``x * Phi(x)``, or ``x * (1 + tanh(u)) / 2`` with ``u = sqrt(2 / pi) * (x + 0.044715 * x^3)``."""
    if kernels.enabled(x):
        from cachelint.runtime.layers.kernels import gelu as fused

        return fused.gelu(x, exact=approximate == "none")
    return F.gelu(x, approximate=approximate)


def gelu_backward(grad: Tensor, x: Tensor, approximate: Approximation = "tanh") -> Tensor:
    """The gradient of x, given the gradient of ``gelu(x)``; computed in float32 at least, in the dtype of x."""
    if kernels.enabled(x, grad):
        from cachelint.runtime.layers.kernels import gelu as fused

        return fused.gelu_backward(grad, x, exact=approximate == "none")
    return (grad * gelu_derivative(wide(x), approximate)).to(x.dtype)


def gelu_derivative(x: Tensor, approximate: Approximation = "tanh") -> Tensor:
    """The derivative of ``gelu`` at x.

    The approximation is ``x * s`` with ``s = sigmoid(2 * u)``, and its derivative ``s + x * s * (1 - s) * 2 * du``.
    """
    if approximate == "none":
        density = torch.exp(-0.5 * x.square()) * (0.5 * math.sqrt(2 / math.pi))
        return 0.5 * (1 + torch.erf(x * math.sqrt(0.5))) + x * density
    square = x.square()
    slope = 2 * SQRT_2_OVER_PI
    s = torch.sigmoid(x * torch.add(slope, square, alpha=slope * CUBIC))
    return torch.addcmul(s, s * (1 - s), x * torch.add(slope, square, alpha=3 * slope * CUBIC))


def reference(node: Gelu, x: Tensor) -> Tensor:
    """Return the same function in plain torch operators."""
    if node.approximate == "none":
        return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))
    return 0.5 * x * (1 + torch.tanh(SQRT_2_OVER_PI * (x + CUBIC * x * x * x)))


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Gelu, tuple[Tensor]]:
    """Return a node and an input for it."""
    return Gelu(), (Init.seeded(seed, device, dtype).normal(2, 3),)


def example_exact(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[Gelu, tuple[Tensor, ...]]:
    """Return a node without the approximation and an input for it."""
    return Gelu("none"), (Init.seeded(seed, device, dtype).normal(2, 3),)
