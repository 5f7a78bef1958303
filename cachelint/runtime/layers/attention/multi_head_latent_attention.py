"""Multi-head latent attention."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.layers.attention.heads import merge_heads, split_heads
from cachelint.runtime.layers.attention.scaled_dot_product_attention import ScaledDotProductAttention
from cachelint.runtime.layers.attention.scaled_dot_product_attention import reference as attended
from cachelint.runtime.layers.core.dense import Dense
from cachelint.runtime.layers.embeddings.rotary_positional_embedding import RotaryPositionalEmbedding
from cachelint.runtime.layers.embeddings.rotary_positional_embedding import reference as rotated
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept


class MultiHeadLatentAttention(SaverAware, Node):
    """Attention whose keys and values come from a narrow latent: ``[B, S, M]`` to ``[B, S, M]``.

    ``c = x @ wDKV`` is ``latent_dim`` wide, ``k = c @ wUK``, ``v = c @ wUV``; the first ``rope_dim`` features of each
    query and key head are rotated. A mask is as for ``ScaledDotProductAttention``. Saved are the outputs of the
    matrix products: queries, latent, keys, values, and the merged heads. Source: the low-rank keys and values of
    DeepSeek-AI, "DeepSeek-V2", arXiv:2405.04434.
    """

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        head_dim: int,
        latent_dim: int,
        *,
        rope_dim: int = 0,
        rope_base: float = 10000.0,
        causal: bool = False,
        bias: bool = False,
        fused: bool | None = None,
        init: Init | None = None,
    ) -> None:
        self.num_heads = num_heads
        self.w_q = Dense(model_dim, num_heads * head_dim, bias=bias, init=init)
        self.w_dkv = Dense(model_dim, latent_dim, bias=bias, init=init)
        self.w_uk = Dense(latent_dim, num_heads * head_dim, bias=bias, init=init)
        self.w_uv = Dense(latent_dim, num_heads * head_dim, bias=bias, init=init)
        self.w_o = Dense(num_heads * head_dim, model_dim, bias=bias, init=init)
        self.rope = RotaryPositionalEmbedding(rope_dim, base=rope_base) if rope_dim else None
        self.sdpa = ScaledDotProductAttention(causal=causal, fused=fused)
        self.q_proj: Tensor | None = None
        self.cached_ckv: Tensor | None = None
        self.k_proj: Tensor | None = None
        self.v_proj: Tensor | None = None
        self.cached_attn_out: Tensor | None = None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the module's output."""
        q_proj, ckv = self.w_q(x), self.w_dkv(x)
        k_proj, v_proj = self.w_uk(ckv), self.w_uv(ckv)
        attn_out = merge_heads(self.sdpa(self._turn(q_proj), self._turn(k_proj), self._split(v_proj), mask))
        self.q_proj = q_proj if self.training else None
        self.cached_ckv = ckv if self.training else None
        self.k_proj = k_proj if self.training else None
        self.v_proj = v_proj if self.training else None
        self.cached_attn_out = attn_out if self.training else None
        self.save_for_backward(self.q_proj, self.cached_ckv, self.k_proj, self.v_proj, self.cached_attn_out)
        return self.w_o.forward(attn_out)

    def backward(self, grad: Tensor, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor | None, ...]:
        """Return the gradient of x, and None for a mask."""
        q_proj, k_proj, v_proj = kept(self.q_proj, self), kept(self.k_proj, self), kept(self.v_proj, self)
        ckv = kept(self.cached_ckv, self)
        (dattn_out,) = self.w_o.backward(grad, kept(self.cached_attn_out, self))
        q, k, v = self._turn(q_proj), self._turn(k_proj), self._split(v_proj)
        dq, dk, dv = self.sdpa.backward(self._split(dattn_out), q, k, v, mask)[:3]
        (from_q,) = self.w_q.backward(self._turn_backward(dq, q_proj), x)
        (from_k,) = self.w_uk.backward(self._turn_backward(dk, k_proj), ckv)
        (from_v,) = self.w_uv.backward(merge_heads(dv), ckv)
        (from_ckv,) = self.w_dkv.backward(from_k + from_v, x)
        dx = from_q + from_ckv
        return (dx,) if mask is None else (dx, None)

    def _split(self, proj: Tensor) -> Tensor:
        return split_heads(proj, self.num_heads)

    def _turn(self, proj: Tensor) -> Tensor:
        """The heads of a projection, rotated."""
        heads = self._split(proj)
        return heads if self.rope is None else self.rope.forward(heads)

    def _turn_backward(self, grad: Tensor, proj: Tensor) -> Tensor:
        """The gradient of a projection, given that of its rotated heads."""
        return merge_heads(grad if self.rope is None else self.rope.backward(grad, self._split(proj))[0])


def reference(node: MultiHeadLatentAttention, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the same formula in plain torch operators."""

    def dense(layer: Dense, value: Tensor) -> Tensor:
        return torch.nn.functional.linear(
            value, layer.linear.weight.value.mT, None if layer.bias is None else layer.bias.value
        )

    def heads(value: Tensor) -> Tensor:
        return value.view(*x.shape[:2], node.num_heads, -1).permute(0, 2, 1, 3)

    ckv = dense(node.w_dkv, x)
    q, k, v = heads(dense(node.w_q, x)), heads(dense(node.w_uk, ckv)), heads(dense(node.w_uv, ckv))
    if node.rope is not None:
        q, k = rotated(node.rope, q), rotated(node.rope, k)
    out = attended(node.sdpa, q, k, v, mask)
    return dense(node.w_o, out.permute(0, 2, 1, 3).reshape(*x.shape[:2], -1))


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MultiHeadLatentAttention, tuple[Tensor]]:
    """Return a node without the fused kernels and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = MultiHeadLatentAttention(6, 2, 4, 3, rope_dim=2, fused=False, init=init)
    init.jitter(node, 0.1)
    return node, (init.normal(2, 3, 6),)


def example_mask(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MultiHeadLatentAttention, tuple[Tensor, ...]]:
    """Return a causal node without rotation, with biases and the fused kernels, an input and a mask."""
    init = Init.seeded(seed, device, dtype)
    node = MultiHeadLatentAttention(6, 2, 8, 3, causal=True, init=init)
    init.jitter(node, 0.1)
    return node, (init.normal(2, 5, 6), init.uniform(2, 1, 5, 5) > -0.8)
