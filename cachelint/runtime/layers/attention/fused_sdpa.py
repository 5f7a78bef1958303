"""Fused scaled dot-product attention as a graph node."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.attention.scaled_dot_product_attention import ScaledDotProductAttention
from cachelint.runtime.layers.attention.scaled_dot_product_attention import reference as attended
from cachelint.runtime.layers.init import Init


class FusedSDPA(Node):
    """Attention over q, k, v and an optional mask, all inputs of the graph; see ``ScaledDotProductAttention``.

    It holds no state of its own: the child takes the live inputs, and what the child saves is registered through the
    saver that the builder hands to it.
    """

    def __init__(
        self, *, causal: bool = False, window: int | None = None, scale: float | None = None, fused: bool | None = None
    ) -> None:
        self.inner = ScaledDotProductAttention(causal=causal, window=window, scale=scale, fused=fused)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the attention output, ``[..., Sq, Dv]``."""
        return self.inner.forward(q, k, v, mask)

    def backward(
        self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of q, k and v, and None for a mask."""
        return self.inner.backward(grad, q, k, v, mask)


def reference(node: FusedSDPA, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the same formula in plain torch operators."""
    return attended(node.inner, q, k, v, mask)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[FusedSDPA, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Return a node and inputs for it, with a mask."""
    init = Init.seeded(seed, device, dtype)
    q, k, v = init.normal(2, 2, 3, 8), init.normal(2, 2, 5, 8), init.normal(2, 2, 5, 8)
    return FusedSDPA(), (q, k, v, init.uniform(2, 1, 3, 5) > -0.6)


def example_plain(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[FusedSDPA, tuple[Tensor, ...]]:
    """Return a node without the fused kernels and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    q, k, v = init.normal(2, 3, 4, 5), init.normal(2, 3, 4, 5), init.normal(2, 3, 4, 5)
    return FusedSDPA(causal=True, fused=False), (q, k, v)
