"""Sum over axes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.init import Init


class ReduceSum(Node):
    """Sums over ``axes``, negative ones counted from the end; over all axes if there are none given."""

    def __init__(self, axes: Sequence[int] = (), *, keepdims: bool = False) -> None:
        self.axes = tuple(axes)
        self.keepdims = keepdims

    def forward(self, x: Tensor) -> Tensor:
        """Return the sums; with ``keepdims`` the summed axes stay, of size one."""
        return x.sum(self._summed(x.dim()), keepdim=self.keepdims)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient, repeated over the summed axes (a view)."""
        summed = self._summed(x.dim())
        kept = [1 if axis in summed else size for axis, size in enumerate(x.shape)]
        return (grad.reshape(kept).expand(x.shape),)

    def _summed(self, rank: int) -> tuple[int, ...]:
        return tuple(sorted({axis % rank for axis in self.axes})) or tuple(range(rank))


def reference(node: ReduceSum, x: Tensor) -> Tensor:
    """Return the same sums, one axis at a time."""
    for axis in sorted({axis % x.dim() for axis in node.axes} or set(range(x.dim())), reverse=True):
        x = sum(x.unbind(axis), torch.zeros_like(x.select(axis, 0)))
        x = x.unsqueeze(axis) if node.keepdims else x
    return x


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[ReduceSum, tuple[Tensor]]:
    """Return a node that sums over two axes, and an input for it."""
    return ReduceSum((0, -1)), (Init.seeded(seed, device, dtype).normal(2, 3, 4),)


def example_keepdims(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[ReduceSum, tuple[Tensor, ...]]:
    """Return a node that keeps the summed axes, and an input for it."""
    return ReduceSum((1, -3), keepdims=True), (Init.seeded(seed, device, dtype).normal(2, 3, 4, 5),)


def example_all(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[ReduceSum, tuple[Tensor, ...]]:
    """Return a node that sums everything, and an input for it."""
    return ReduceSum(), (Init.seeded(seed, device, dtype).normal(2, 3),)
