"""Grouped-query attention."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.layers.attention.heads import merge_heads, repeat_heads, split_heads, sum_repeated
from cachelint.runtime.layers.attention.scaled_dot_product_attention import ScaledDotProductAttention
from cachelint.runtime.layers.attention.scaled_dot_product_attention import reference as attended
from cachelint.runtime.layers.core.dense import Dense
from cachelint.runtime.layers.embeddings.rotary_positional_embedding import RotaryPositionalEmbedding
from cachelint.runtime.layers.embeddings.rotary_positional_embedding import reference as rotated
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept
from cachelint.runtime.layers.normalization.rms_norm import RMSNorm
from cachelint.runtime.layers.normalization.rms_norm import reference as normalized


class GroupedQueryAttention(SaverAware, Node):
    """Attention, ``[B, S, M]`` to ``[B, S, M]``, in which groups of query heads share one key and value head.

    Queries and keys are optionally normalized per head (``qk_norm``), then rotated (unless ``rope_base`` is None). A
    mask is as for ``ScaledDotProductAttention`` and broadcasts against ``[B, num_heads, S, Sk]``. Finished keys and
    values, ``[B, num_kv_heads, Sk, D]``, may be given in place of those that x would make.

    Saved are the outputs of the matrix products: the three projections, and the merged heads, the live input of the
    output projection. Normalization, rotation and the repetition of heads are derived from them again. Source:
    Ainslie et al., "GQA", arXiv:2305.13245.

    Raises:
        ValueError: the heads can't be grouped evenly.
    """

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        num_kv_heads: int,
        *,
        head_dim: int | None = None,
        causal: bool = True,
        window: int | None = None,
        rope_base: float | None = 10000.0,
        rope_offset: int = 0,
        qk_norm: bool = False,
        bias: bool = False,
        fused: bool | None = None,
        init: Init | None = None,
    ) -> None:
        if num_heads % num_kv_heads or (head_dim is None and model_dim % num_heads):
            raise ValueError(
                f"{num_heads} heads of {model_dim} features can't share {num_kv_heads} key and value heads"
            )
        head_dim = head_dim or model_dim // num_heads
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.wq = Dense(model_dim, num_heads * head_dim, bias=bias, init=init)
        self.wk = Dense(model_dim, num_kv_heads * head_dim, bias=bias, init=init)
        self.wv = Dense(model_dim, num_kv_heads * head_dim, bias=bias, init=init)
        self.wo = Dense(num_heads * head_dim, model_dim, bias=bias, init=init)
        self.q_norm = RMSNorm(head_dim, init=init) if qk_norm else None
        self.k_norm = RMSNorm(head_dim, init=init) if qk_norm else None
        self.rope = None if rope_base is None else RotaryPositionalEmbedding(base=rope_base, offset=rope_offset)
        self.sdpa = ScaledDotProductAttention(causal=causal, window=window, fused=fused)
        self.q_proj: Tensor | None = None
        self.k_proj: Tensor | None = None
        self.v_proj: Tensor | None = None
        self.attn_output_final: Tensor | None = None

    def forward(
        self, x: Tensor, mask: Tensor | None = None, keys: Tensor | None = None, values: Tensor | None = None
    ) -> Tensor:
        """Return the module's output."""
        q_proj = self.wq(x)
        k_proj = self.wk(x) if keys is None else None
        v_proj = self.wv(x) if values is None else None
        q, k, v = self._heads(q_proj, k_proj, v_proj, keys, values)
        attn_output_final = merge_heads(self.sdpa(q, k, v, mask))
        self.q_proj = q_proj if self.training else None
        self.k_proj = k_proj if self.training else None
        self.v_proj = v_proj if self.training else None
        self.attn_output_final = attn_output_final if self.training else None
        self.save_for_backward(self.q_proj, self.k_proj, self.v_proj, self.attn_output_final)
        return self.wo.forward(attn_output_final)

    def backward(
        self,
        grad: Tensor,
        x: Tensor,
        mask: Tensor | None = None,
        keys: Tensor | None = None,
        values: Tensor | None = None,
    ) -> tuple[Tensor | None, ...]:
        """Return the gradient of x, then None for a mask and the gradients of given keys and values."""
        q_proj = kept(self.q_proj, self)
        (dmerged,) = self.wo.backward(grad, kept(self.attn_output_final, self))
        q, k, v = self._heads(q_proj, self.k_proj, self.v_proj, keys, values)
        dq, dk, dv = self.sdpa.backward(split_heads(dmerged, self.num_heads), q, k, v, mask)[:3]
        group = self.num_heads // self.num_kv_heads
        dk, dv = sum_repeated(dk, group), sum_repeated(dv, group)

        dq_proj = merge_heads(self._turn_backward(dq, split_heads(q_proj, self.num_heads), self.q_norm))
        (dx,) = self.wq.backward(dq_proj, x)
        if self.k_proj is not None:
            dk_proj = merge_heads(self._turn_backward(dk, split_heads(self.k_proj, self.num_kv_heads), self.k_norm))
            dx = dx + self.wk.backward(dk_proj, x)[0]
        if self.v_proj is not None:
            dx = dx + self.wv.backward(merge_heads(dv), x)[0]
        if keys is None and values is None:
            return (dx,) if mask is None else (dx, None)
        return dx, None, None if keys is None else dk, None if values is None else dv

    def _heads(
        self,
        q_proj: Tensor,
        k_proj: Tensor | None,
        v_proj: Tensor | None,
        keys: Tensor | None,
        values: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What the attention takes, ``[B, num_heads, S, D]`` each: from the projections, or given."""
        q = self._turn(split_heads(q_proj, self.num_heads), self.q_norm)
        k = keys if k_proj is None else self._turn(split_heads(k_proj, self.num_kv_heads), self.k_norm)
        v = values if v_proj is None else split_heads(v_proj, self.num_kv_heads)
        group = self.num_heads // self.num_kv_heads
        return q, repeat_heads(kept(k, self), group), repeat_heads(kept(v, self), group)

    def _turn(self, heads: Tensor, norm: RMSNorm | None) -> Tensor:
        """Normalize and rotate."""
        normed = heads if norm is None else norm.forward(heads)
        return normed if self.rope is None else self.rope.forward(normed)

    def _turn_backward(self, grad: Tensor, heads: Tensor, norm: RMSNorm | None) -> Tensor:
        """The gradient of ``heads``, given that of ``_turn(heads, norm)``."""
        if self.rope is not None:
            grad = self.rope.backward(grad, heads if norm is None else norm.forward(heads))[0]
        return grad if norm is None else norm.backward(grad, heads)[0]


def reference(
    node: GroupedQueryAttention,
    x: Tensor,
    mask: Tensor | None = None,
    keys: Tensor | None = None,
    values: Tensor | None = None,
) -> Tensor:
    """Return the same formula in plain torch operators."""

    def dense(layer: Dense, value: Tensor) -> Tensor:
        return torch.nn.functional.linear(
            value, layer.linear.weight.value.mT, None if layer.bias is None else layer.bias.value
        )

    def turn(heads: Tensor, norm: RMSNorm | None) -> Tensor:
        heads = heads if norm is None else normalized(norm, heads)
        return heads if node.rope is None else rotated(node.rope, heads)

    batch, length, _ = x.shape
    q = turn(dense(node.wq, x).view(batch, length, node.num_heads, -1).permute(0, 2, 1, 3), node.q_norm)
    if keys is None:
        keys = turn(dense(node.wk, x).view(batch, length, node.num_kv_heads, -1).permute(0, 2, 1, 3), node.k_norm)
    if values is None:
        values = dense(node.wv, x).view(batch, length, node.num_kv_heads, -1).permute(0, 2, 1, 3)
    owner = torch.arange(node.num_heads, device=x.device) // (node.num_heads // node.num_kv_heads)
    out = attended(node.sdpa, q, keys[:, owner], values[:, owner], mask)
    return dense(node.wo, out.permute(0, 2, 1, 3).reshape(batch, length, -1))


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[GroupedQueryAttention, tuple[Tensor]]:
    """Return a node with four heads in two groups, without the fused kernels, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = GroupedQueryAttention(8, 4, 2, fused=False, init=init)
    init.jitter(node, 0.1)
    return node, (init.normal(2, 3, 8),)


def example_qk_norm(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[GroupedQueryAttention, tuple[Tensor, ...]]:
    """Return a node with normalized queries and keys, biases, a window and the fused kernels, an input and a mask."""
    init = Init.seeded(seed, device, dtype)
    node = GroupedQueryAttention(6, 6, 2, head_dim=8, window=2, rope_offset=3, qk_norm=True, bias=True, init=init)
    init.jitter(node, 0.1)
    return node, (init.normal(2, 5, 6), init.uniform(2, 1, 5, 5) > -0.8)


def example_given_keys(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[GroupedQueryAttention, tuple[Tensor, ...]]:
    """Return a node without rotation, an input, a mask, and finished keys and values."""
    init = Init.seeded(seed, device, dtype)
    node = GroupedQueryAttention(8, 4, 1, causal=False, rope_base=None, fused=False, init=init)
    x, keys, values = init.normal(2, 3, 8), init.normal(2, 1, 5, 2), init.normal(2, 1, 5, 2)
    return node, (x, init.uniform(2, 1, 3, 5) > -0.8, keys, values)
