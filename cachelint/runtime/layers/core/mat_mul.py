"""Matrix product of two inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.init import Init


class MatMul(Node):
    """``y = a @ b``, or ``a @ b^T`` with ``transpose_b``; leading axes broadcast as torch does.

    Raises:
        ValueError: an input has fewer than two axes.
    """

    def __init__(self, *, transpose_b: bool = False) -> None:
        self.transpose_b = transpose_b

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the product, ``[..., M, N]`` for a of ``[..., M, K]``."""
        if a.dim() < 2 or b.dim() < 2:
            raise ValueError(f"MatMul needs matrices, not the shapes {tuple(a.shape)} and {tuple(b.shape)}")
        return a @ (b.mT if self.transpose_b else b)

    def backward(self, grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``grad @ b^T`` and ``a^T @ grad``, summed over the axes along which a or b was broadcast."""
        da = grad @ (b if self.transpose_b else b.mT)
        db = grad.mT @ a if self.transpose_b else a.mT @ grad
        return da.sum_to_size(a.shape), db.sum_to_size(b.shape)


def reference(node: MatMul, a: Tensor, b: Tensor) -> Tensor:
    """Return the same product in plain torch operators."""
    return torch.einsum("...mk,...nk->...mn" if node.transpose_b else "...mk,...kn->...mn", a, b)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MatMul, tuple[Tensor, Tensor]]:
    """Return a node and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    return MatMul(), (init.normal(2, 3, 4), init.normal(4, 5))


def example_transposed(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MatMul, tuple[Tensor, ...]]:
    """Return a node that transposes b, and inputs that broadcast."""
    init = Init.seeded(seed, device, dtype)
    return MatMul(transpose_b=True), (init.normal(1, 2, 3, 4), init.normal(5, 1, 6, 4))
