"""Bias."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, Parameter
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.numerics import sum_leading


class Bias(Node):
    """``y = x + offset`` over the last axis, N wide."""

    def __init__(self, size: int, *, init: Init | None = None) -> None:
        self.offset = Parameter((init or Init()).full((size,), 0.0), "bias")

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x + offset``, ``[..., N]``."""
        return x + self.offset.value

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient itself; the offset gets its sum over the leading axes."""
        self.offset.accumulate(sum_leading(grad))
        return (grad,)


def reference(node: Bias, x: Tensor) -> Tensor:
    """Return the same sum in plain torch operators."""
    return torch.add(x, node.offset.value)


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Bias, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = Bias(3, init=init)
    init.jitter(node)
    return node, (init.normal(2, 5, 3),)
