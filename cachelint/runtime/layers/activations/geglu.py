"""Gated linear unit with the GELU activation."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.activations.gelu import Approximation, gelu, gelu_derivative
from cachelint.runtime.layers.activations.swiglu import halves
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.numerics import wide


class GeGLU(Node):
    """``y = gelu(gate) * up`` with ``[gate, up]`` the halves of the last axis: ``[..., 2D]`` to ``[..., D]``.

    Source: Shazeer, "GLU Variants Improve Transformer", arXiv:2002.05202.

    Raises:
        ValueError: the last axis has an odd size.
    """

    def __init__(self, approximate: Approximation = "tanh") -> None:
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """Return the gated half."""
        gate, up = halves(x)
        return gelu(gate, self.approximate) * up

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x, both halves side by side."""
        gate, up = halves(wide(x))
        dgate = grad * up * gelu_derivative(gate, self.approximate)
        dup = grad * gelu(gate, self.approximate)
        return (torch.cat([dgate, dup], -1).to(x.dtype),)


def reference(node: GeGLU, x: Tensor) -> Tensor:
    """Return the same function in plain torch operators."""
    gate, up = x.tensor_split(2, -1)
    return torch.nn.functional.gelu(gate, approximate=node.approximate) * up


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[GeGLU, tuple[Tensor]]:
    """Return a node and an input for it."""
    return GeGLU(), (Init.seeded(seed, device, dtype).normal(2, 6),)


def example_exact(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[GeGLU, tuple[Tensor, ...]]:
    """Return a node without the approximation and an input for it."""
    return GeGLU("none"), (Init.seeded(seed, device, dtype).normal(3, 4),)
