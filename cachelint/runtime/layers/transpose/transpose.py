"""Permutation of axes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.init import Init


class Transpose(Node):
    """Permutes the axes: axis i of the result is axis ``perm[i]`` of x. Without ``perm`` the axes are reversed."""

    def __init__(self, perm: Sequence[int] | None = None) -> None:
        self.perm = None if perm is None else tuple(perm)

    def forward(self, x: Tensor) -> Tensor:
        """Return x with its axes permuted, a view."""
        return x.permute(self._order(x.dim()))

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient with its axes permuted back."""
        order = self._order(x.dim())
        return (grad.permute([order.index(axis) for axis in range(x.dim())]),)

    def _order(self, rank: int) -> tuple[int, ...]:
        """The permutation for a tensor of that rank, without negative axes.

        Raises:
            ValueError: ``perm`` is no permutation of that many axes.
        """
        if self.perm is None:
            return tuple(reversed(range(rank)))
        order = tuple(axis % rank for axis in self.perm)
        if sorted(order) != list(range(rank)):
            raise ValueError(f"{self.perm} does not permute {rank} axes")
        return order


def reference(node: Transpose, x: Tensor) -> Tensor:
    """Return the same permutation in plain torch operators."""
    order = node.perm or range(x.dim())[::-1]
    return torch.movedim(x, [axis % x.dim() for axis in order], list(range(x.dim())))


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Transpose, tuple[Tensor]]:
    """Return a node whose permutation is not its own inverse, and an input for it."""
    return Transpose((1, 2, 0)), (Init.seeded(seed, device, dtype).normal(2, 3, 4),)


def example_reversed(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[Transpose, tuple[Tensor, ...]]:
    """Return a node without a permutation and an input for it."""
    return Transpose(), (Init.seeded(seed, device, dtype).normal(2, 3, 4, 5),)


def example_negative(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[Transpose, tuple[Tensor, ...]]:
    """Return a node with negative axes and an input for it."""
    return Transpose((-1, 0, -2)), (Init.seeded(seed, device, dtype).normal(2, 3, 4),)
