"""Softmax over one axis."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.layers import kernels
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept
from cachelint.runtime.layers.numerics import wide


class Softmax(SaverAware, Node):
    """``y = exp(x) / sum(exp(x))`` along ``axis`` (negative ones count from the end). Any shape. Saves y."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis
        self.output: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the softmax of x."""
        y = softmax(x, self.axis)
        self.output = y if self.training else None
        self.save_for_backward(self.output)
        return y

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return ``grad * y - y * sum(grad * y)``."""
        return (softmax_backward(grad, kept(self.output, self), self.axis),)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """``exp(x) / sum(exp(x))`` along ``axis``."""
    if axis in (-1, x.dim() - 1) and kernels.enabled(x, row=x.shape[axis] if x.dim() else 1):
        from cachelint.runtime.layers.kernels import softmax as fused

        return fused.softmax(x)
    return torch.softmax(x, axis)


def softmax_backward(grad: Tensor, y: Tensor, axis: int = -1) -> Tensor:
    """The gradient of x, given ``y = softmax(x, axis)`` and its gradient; in the dtype of y."""
    if axis in (-1, y.dim() - 1) and kernels.enabled(y, grad, row=y.shape[axis] if y.dim() else 1):
        from cachelint.runtime.layers.kernels import softmax as fused

        return fused.softmax_backward(grad, y)
    y_wide = wide(y)
    product = grad * y_wide
    return torch.addcmul(product, y_wide, product.sum(axis, keepdim=True), value=-1).to(y.dtype)


def reference(node: Softmax, x: Tensor) -> Tensor:
    """Return the same function in other torch operators."""
    return torch.exp(x - torch.logsumexp(x, node.axis, keepdim=True))


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Softmax, tuple[Tensor]]:
    """Return a node and an input for it."""
    return Softmax(), (Init.seeded(seed, device, dtype).normal(2, 3),)


def example_first_axis(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[Softmax, tuple[Tensor, ...]]:
    """Return a node along the first axis and an input for it."""
    return Softmax(0), (Init.seeded(seed, device, dtype).normal(5, 2, 3),)
