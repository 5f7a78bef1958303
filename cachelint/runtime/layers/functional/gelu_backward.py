"""GELU whose backward goes through the functional form."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.activations.gelu import Approximation, gelu, gelu_backward
from cachelint.runtime.layers.init import Init


class GELUBackward(Node):
    """``gelu`` and ``gelu_backward`` as a layer: backward calls the function with the live input.

    No forward has to run before it.
    """

    def __init__(self, approximate: Approximation = "tanh") -> None:
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """Return the activation of x, of any shape."""
        return gelu(x, self.approximate)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x."""
        return (gelu_backward(grad, x, self.approximate),)


def reference(node: GELUBackward, x: Tensor) -> Tensor:
    """Return the same function from torch itself."""
    return torch.nn.functional.gelu(x, approximate=node.approximate)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[GELUBackward, tuple[Tensor]]:
    """Return a node and an input for it."""
    return GELUBackward(), (Init.seeded(seed, device, dtype).normal(2, 3),)


def example_exact(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[GELUBackward, tuple[Tensor, ...]]:
    """Return a node without the approximation and an input for it."""
    return GELUBackward("none"), (Init.seeded(seed, device, dtype).normal(2, 3),)
