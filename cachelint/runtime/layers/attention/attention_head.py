"""One attention head with its projections."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.layers.attention.scaled_dot_product_attention import ScaledDotProductAttention
from cachelint.runtime.layers.attention.scaled_dot_product_attention import reference as attended
from cachelint.runtime.layers.core.dense import Dense
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept


class AttentionHead(SaverAware, Node):
    """Self-attention with one head: ``[B, S, In]`` to ``[B, S, D]``; the mask as for ``ScaledDotProductAttention``.

    The three projections are live inputs of the attention and are saved here.
    """

    def __init__(
        self,
        in_features: int,
        head_dim: int,
        *,
        causal: bool = False,
        bias: bool = True,
        fused: bool | None = None,
        init: Init | None = None,
    ) -> None:
        self.q_proj = Dense(in_features, head_dim, bias=bias, init=init)
        self.k_proj = Dense(in_features, head_dim, bias=bias, init=init)
        self.v_proj = Dense(in_features, head_dim, bias=bias, init=init)
        self.sdpa = ScaledDotProductAttention(causal=causal, fused=fused)
        self.query: Tensor | None = None
        self.key: Tensor | None = None
        self.value: Tensor | None = None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the head's output."""
        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        self.query = query if self.training else None
        self.key = key if self.training else None
        self.value = value if self.training else None
        self.save_for_backward(self.query, self.key, self.value)
        return self.sdpa.forward(query, key, value, mask)

    def backward(self, grad: Tensor, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor | None, ...]:
        """Return the gradient of x, and None for a mask."""
        query, key, value = kept(self.query, self), kept(self.key, self), kept(self.value, self)
        dq, dk, dv = self.sdpa.backward(grad, query, key, value, mask)[:3]
        (from_q,) = self.q_proj.backward(dq, x)
        (from_k,) = self.k_proj.backward(dk, x)
        (from_v,) = self.v_proj.backward(dv, x)
        dx = from_q + from_k + from_v
        return (dx,) if mask is None else (dx, None)


def reference(node: AttentionHead, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the same formula in plain torch operators."""
    q, k, v = (
        torch.nn.functional.linear(x, layer.linear.weight.value.mT, None if layer.bias is None else layer.bias.value)
        for layer in (node.q_proj, node.k_proj, node.v_proj)
    )
    return attended(node.sdpa, q, k, v, mask)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[AttentionHead, tuple[Tensor]]:
    """Return a causal head without the fused kernels and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = AttentionHead(3, 4, causal=True, bias=False, fused=False, init=init)
    return node, (init.normal(2, 3, 3),)


def example_mask(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[AttentionHead, tuple[Tensor, ...]]:
    """Return a head that takes the fused kernels, an input and a mask."""
    init = Init.seeded(seed, device, dtype)
    node = AttentionHead(5, 8, bias=False, init=init)
    return node, (init.normal(2, 4, 5), init.uniform(2, 4, 4) > -0.7)
