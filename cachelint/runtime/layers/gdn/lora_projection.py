"""The input projection of a gated delta net with low-rank adapters on two of its four components."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cachelint.runtime import Node, Parameter
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.numerics import rows


@dataclass(frozen=True)
class Columns:
    """How many columns each component of the projection has, in the order in which they are joined."""

    qkv: int = 8192
    z: int = 4096
    beta: int = 32
    alpha: int = 32

    @property
    def total(self) -> int:
        """Columns of the joined projection."""
        return self.qkv + self.z + self.beta + self.alpha


class LoRAProjection(Node):
    """``y = x @ base + cat(qkv, z, beta, alpha)``: ``[..., Hidden]`` to ``[..., Columns.total]``.

    ``qkv`` and ``z`` are adapters, ``scale * x @ a @ b`` with ``a`` ``[Hidden, Rank]`` and ``b`` ``[Rank, columns]``;
    ``beta`` and ``alpha`` carry none and are zero. The base weight is frozen: it is no parameter and gets no gradient.
    """

    def __init__(
        self,
        hidden: int = 2048,
        columns: Columns | None = None,
        *,
        rank: int = 16,
        scale: float = 2.0,
        init: Init | None = None,
    ) -> None:
        init = init or Init()
        self.columns = columns or Columns()
        self.scale = scale
        self.base_weight = init.fan_in(hidden, self.columns.total)
        self.a_qkv = Parameter(init.fan_in(hidden, rank), "a_qkv")
        self.b_qkv = Parameter(init.fan_in(rank, self.columns.qkv), "b_qkv")
        self.a_z = Parameter(init.fan_in(hidden, rank), "a_z")
        self.b_z = Parameter(init.fan_in(rank, self.columns.z), "b_z")

    def forward(self, x: Tensor) -> Tensor:
        """Return the base projection with the adapters added."""
        base = x @ self.base_weight
        qkv = self._adapted(x, self.a_qkv, self.b_qkv)
        z = self._adapted(x, self.a_z, self.b_z)
        beta = x.new_zeros(*x.shape[:-1], self.columns.beta)
        alpha = x.new_zeros(*x.shape[:-1], self.columns.alpha)
        adapters = torch.cat((qkv, z, beta, alpha), dim=-1)
        # The four are together as large as what they were joined to: gone before the sum takes as much again.
        del qkv, z, beta, alpha
        return base + adapters

    def _adapted(self, x: Tensor, a: Parameter, b: Parameter) -> Tensor:
        return (x @ a.value * self.scale) @ b.value

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of ``x``; the four adapter weights get theirs."""
        columns = self.columns
        grad_qkv, grad_z, _, _ = torch.split(grad, [columns.qkv, columns.z, columns.beta, columns.alpha], dim=-1)
        grad_x = grad @ self.base_weight.mT
        for grad_part, a, b in ((grad_qkv, self.a_qkv, self.b_qkv), (grad_z, self.a_z, self.b_z)):
            b.accumulate(rows(x @ a.value * self.scale).mT @ rows(grad_part))
            grad_down = grad_part @ b.value.mT * self.scale
            a.accumulate(rows(x).mT @ rows(grad_down))
            grad_x = grad_x + grad_down @ a.value.mT
        return (grad_x,)


def reference(node: LoRAProjection, x: Tensor) -> Tensor:
    """Return the same projection in plain torch operators."""
    columns = node.columns
    qkv = node.scale * torch.einsum("...h,hr,rc->...c", x, node.a_qkv.value, node.b_qkv.value)
    z = node.scale * torch.einsum("...h,hr,rc->...c", x, node.a_z.value, node.b_z.value)
    padded = torch.nn.functional.pad(torch.cat((qkv, z), dim=-1), (0, columns.beta + columns.alpha))
    return torch.einsum("...h,hc->...c", x, node.base_weight) + padded


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[LoRAProjection, tuple[Tensor]]:
    """Return a small node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    return LoRAProjection(6, Columns(8, 4, 2, 2), rank=3, init=init), (init.normal(2, 5, 6),)
