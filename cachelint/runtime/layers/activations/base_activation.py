"""The base of elementwise activations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.numerics import wide

Elementwise = Callable[[Tensor], Tensor]


class BaseActivation(Node):
    """``y = f(x)`` for any shape, from a function and its derivative.

    Both take the pre-activation x. The derivative gets half precision as float32; the product is rounded once.
    """

    def __init__(self, function: Elementwise, derivative: Elementwise) -> None:
        self.function = function
        self.derivative = derivative

    def forward(self, x: Tensor) -> Tensor:
        """Return f(x)."""
        return self.function(x)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return ``grad * f'(x)``."""
        return ((grad * self.derivative(wide(x))).to(x.dtype),)


def reference(node: BaseActivation, x: Tensor) -> Tensor:
    """Return the same function; autograd differentiates it."""
    return node.function(x)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[BaseActivation, tuple[Tensor]]:
    """Return a sine activation and an input."""
    init = Init.seeded(seed, device, dtype)
    return BaseActivation(torch.sin, torch.cos), (init.normal(2, 3),)
