"""Sum of two tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.init import Init


class Add(Node):
    """``y = a + b``, broadcast as torch does."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the sum."""
        return a + b

    def backward(self, grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient for each, summed over the axes along which it was broadcast."""
        return grad.sum_to_size(a.shape), grad.sum_to_size(b.shape)


def reference(node: Add, a: Tensor, b: Tensor) -> Tensor:
    """Return the same sum in plain torch operators."""
    return torch.add(a, b)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[Add, tuple[Tensor, Tensor]]:
    """Return a node and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    return Add(), (init.normal(2, 3), init.normal(3))
