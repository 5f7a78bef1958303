"""Attention within a window."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.attention.grouped_query_attention import GroupedQueryAttention
from cachelint.runtime.layers.attention.grouped_query_attention import reference as attended
from cachelint.runtime.layers.init import Init


class LocalAttention(Node):
    """Grouped-query attention of each position to those at most ``window`` away, on both sides unless ``causal``.

    ``[B, S, M]`` to ``[B, S, M]``; see ``GroupedQueryAttention``. The window's mask follows from shapes.
    """

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        num_kv_heads: int,
        window: int,
        *,
        causal: bool = False,
        rope_base: float | None = 10000.0,
        qk_norm: bool = False,
        bias: bool = False,
        fused: bool | None = None,
        init: Init | None = None,
    ) -> None:
        if window < 0:
            raise ValueError(f"window must not be negative, not {window}")
        self.gqa = GroupedQueryAttention(
            model_dim,
            num_heads,
            num_kv_heads,
            causal=causal,
            window=window,
            rope_base=rope_base,
            qk_norm=qk_norm,
            bias=bias,
            fused=fused,
            init=init,
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the module's output."""
        return self.gqa.forward(x, mask)

    def backward(self, grad: Tensor, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor | None, ...]:
        """Return the gradient of x, and None for a mask."""
        return self.gqa.backward(grad, x, mask)


def reference(node: LocalAttention, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the same formula in plain torch operators."""
    return attended(node.gqa, x, mask)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[LocalAttention, tuple[Tensor]]:
    """Return a node without the fused kernels and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = LocalAttention(8, 4, 2, 1, fused=False, init=init)
    init.jitter(node, 0.1)
    return node, (init.normal(2, 4, 8),)


def example_causal(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[LocalAttention, tuple[Tensor, ...]]:
    """Return a node that looks back only, with the fused kernels, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = LocalAttention(16, 2, 1, 2, causal=True, init=init)
    init.jitter(node, 0.1)
    return node, (init.normal(2, 6, 16),)
