"""A low-rank adapter beside another layer."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, Parameter, SaverAware
from cachelint.runtime.layers.core import dense
from cachelint.runtime.layers.core.dense import Dense
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept
from cachelint.runtime.layers.numerics import rows


class LoraLinear(SaverAware, Node):
    """``y = base(x) + scale * (x @ a^T) @ b^T``: a ``[rank, In]`` is random, b ``[Out, rank]`` starts at zero.

    ``scale`` is ``alpha / rank``, or ``alpha / sqrt(rank)`` if ``rank_stabilised``. ``base`` is any node from
    ``[..., In]`` to ``[..., Out]``. Saved is ``x @ a^T``. Source: Hu et al., "LoRA", arXiv:2106.09685; the other
    scale: Kalajdzievski, arXiv:2312.03732.
    """

    def __init__(
        self,
        base: Node,
        in_features: int,
        out_features: int,
        *,
        rank: int = 8,
        alpha: float = 16.0,
        rank_stabilised: bool = False,
        init: Init | None = None,
    ) -> None:
        init = init or Init()
        self.base = base
        self.a = Parameter(init.normal(rank, in_features, std=in_features**-0.5), "a")
        self.b = Parameter(init.full((out_features, rank), 0.0), "b")
        self.scale = alpha / (rank**0.5 if rank_stabilised else rank)
        self.reduced: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the base's result with the adapter's added."""
        reduced = x @ self.a.value.mT
        self.reduced = reduced if self.training else None
        self.save_for_backward(self.reduced)
        base: Tensor = self.base.forward(x)
        return base + self.scale * (reduced @ self.b.value.mT)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x; add those of a, b and the base."""
        scaled = self.scale * grad
        dreduced = scaled @ self.b.value
        self.b.accumulate(rows(scaled).mT @ rows(kept(self.reduced, self)))
        self.a.accumulate(rows(dreduced).mT @ rows(x))
        (dx,) = self.base.backward(grad, x)
        return (dx + dreduced @ self.a.value,)


def reference(node: LoraLinear, x: Tensor) -> Tensor:
    """Return the same formula in plain torch operators, for a ``Dense`` base."""
    assert isinstance(node.base, Dense)
    update = node.scale * node.b.value @ node.a.value
    return dense.reference(node.base, x) + torch.einsum("...i,oi->...o", x, update)


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[LoraLinear, tuple[Tensor]]:
    """Return a node whose b isn't zero, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = LoraLinear(Dense(3, 4, init=init), 3, 4, rank=2, alpha=3.0, init=init)
    init.jitter(node)
    return node, (init.normal(2, 5, 3),)


def example_rank_stabilised(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[LoraLinear, tuple[Tensor, ...]]:
    """Return a node over a base with a bias, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    base = Dense(5, 3, bias=True, init=init)
    node = LoraLinear(base, 5, 3, rank=4, rank_stabilised=True, init=init)
    init.jitter(node)
    return node, (init.normal(7, 5),)
