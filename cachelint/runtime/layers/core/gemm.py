"""General matrix product, as the ONNX operator."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.init import Init


class Gemm(Node):
    """``y = alpha * op(a) @ op(b) + beta * c`` of matrices, with op the transpose if asked for; c is optional.

    c broadcasts against the product, ``[M, N]``. Source: ONNX operator Gemm, version 13.
    """

    def __init__(
        self, *, alpha: float = 1.0, beta: float = 1.0, transpose_a: bool = False, transpose_b: bool = False
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.transpose_a = transpose_a
        self.transpose_b = transpose_b

    def forward(self, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        """Return the product and sum."""
        product = self.alpha * (oriented(a, self.transpose_a) @ oriented(b, self.transpose_b))
        return product if c is None else product + self.beta * c

    def backward(self, grad: Tensor, a: Tensor, b: Tensor, c: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return one gradient for each input."""
        scaled = self.alpha * grad
        da = oriented(scaled @ oriented(b, self.transpose_b).mT, self.transpose_a)
        db = oriented(oriented(a, self.transpose_a).mT @ scaled, self.transpose_b)
        return (da, db) if c is None else (da, db, (self.beta * grad).sum_to_size(c.shape))


def oriented(matrix: Tensor, transpose: bool) -> Tensor:
    """The matrix, or its transpose."""
    return matrix.mT if transpose else matrix


def reference(node: Gemm, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """Return the same formula in plain torch operators."""
    a, b = a.t() if node.transpose_a else a, b.t() if node.transpose_b else b
    c = a.new_zeros(1) if c is None else c
    return torch.addmm(c, a, b, alpha=node.alpha, beta=node.beta)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[Gemm, tuple[Tensor, Tensor, Tensor]]:
    """Return a node and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    return Gemm(alpha=0.5, beta=2.0, transpose_b=True), (init.normal(3, 4), init.normal(5, 4), init.normal(5))


def example_two_inputs(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[Gemm, tuple[Tensor, ...]]:
    """Return a node that transposes a, without c."""
    init = Init.seeded(seed, device, dtype)
    return Gemm(alpha=-2.0, transpose_a=True), (init.normal(4, 3), init.normal(4, 5))


def example_column(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[Gemm, tuple[Tensor, ...]]:
    """Return a node that transposes both, with c as a column."""
    init = Init.seeded(seed, device, dtype)
    node = Gemm(beta=0.5, transpose_a=True, transpose_b=True)
    return node, (init.normal(4, 3), init.normal(5, 4), init.normal(3, 1))
