"""A transformer block with three norms."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.layers.attention import grouped_query_attention
from cachelint.runtime.layers.attention.grouped_query_attention import GroupedQueryAttention
from cachelint.runtime.layers.core import ffn
from cachelint.runtime.layers.core.ffn import FFN
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept
from cachelint.runtime.layers.normalization import rms_norm
from cachelint.runtime.layers.normalization.rms_norm import RMSNorm


class Block(SaverAware, Node):
    """``p = norm_post(x + attention(norm1(x)))``, ``y = p + ffn(norm2(p))``: ``[B, S, M]`` to the same.

    ``attention`` and ``ffn`` are any nodes from ``[B, S, M]`` to the same; ``attention`` is also given the mask, if
    there is one. Each child's live input is saved: the results of the three norms, and the sum that ``norm_post``
    reads.
    """

    def __init__(self, width: int, attention: Node, ffn: Node, *, eps: float = 1e-6, init: Init | None = None) -> None:
        self.norm1 = RMSNorm(width, eps, init=init)
        self.attention = attention
        self.norm_post = RMSNorm(width, eps, init=init)
        self.norm2 = RMSNorm(width, eps, init=init)
        self.ffn = ffn
        self.norm1_out: Tensor | None = None
        self.residual1: Tensor | None = None
        self.post_attn: Tensor | None = None
        self.norm2_out: Tensor | None = None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the block's result."""
        norm1_out = self.norm1.forward(x)
        residual1 = x + self._attend(norm1_out, mask)
        post_attn = self.norm_post.forward(residual1)
        norm2_out = self.norm2.forward(post_attn)
        self.norm1_out = norm1_out if self.training else None
        self.residual1 = residual1 if self.training else None
        self.post_attn = post_attn if self.training else None
        self.norm2_out = norm2_out if self.training else None
        self.save_for_backward(self.norm1_out, self.residual1, self.post_attn, self.norm2_out)
        y: Tensor = post_attn + self.ffn.forward(norm2_out)
        return y

    def backward(self, grad: Tensor, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor] | tuple[Tensor, None]:
        """Return the gradient of x; add those of the children. A mask has none."""
        (dnorm2_out,) = self.ffn.backward(grad, kept(self.norm2_out, self))
        (dpost_attn,) = self.norm2.backward(dnorm2_out, kept(self.post_attn, self))
        (dresidual1,) = self.norm_post.backward(grad + dpost_attn, kept(self.residual1, self))
        inputs = (kept(self.norm1_out, self),) if mask is None else (kept(self.norm1_out, self), mask)
        dnorm1_out = self.attention.backward(dresidual1, *inputs)[0]
        (dx,) = self.norm1.backward(dnorm1_out, x)
        return (dresidual1 + dx,) if mask is None else (dresidual1 + dx, None)

    def _attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        y: Tensor = self.attention.forward(x) if mask is None else self.attention.forward(x, mask)
        return y


def reference(node: Block, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the same block in plain torch operators, for ``GroupedQueryAttention`` and ``FFN``."""
    assert isinstance(node.attention, GroupedQueryAttention)
    assert isinstance(node.ffn, FFN)
    normed = rms_norm.reference(node.norm1, x)
    attended = grouped_query_attention.reference(node.attention, normed, mask)
    p = rms_norm.reference(node.norm_post, torch.add(x, attended))
    return torch.add(p, ffn.reference(node.ffn, rms_norm.reference(node.norm2, p)))


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Block, tuple[Tensor]]:
    """Return a node of four heads in two groups, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    attention = GroupedQueryAttention(8, 4, 2, init=init)
    node = Block(8, attention, FFN(8, 6, 8, init=init), init=init)
    init.jitter(node, 0.1)
    return node, (init.normal(2, 3, 8),)


def example_masked(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[Block, tuple[Tensor, ...]]:
    """Return a node whose children have other options, an input and a mask."""
    init = Init.seeded(seed, device, dtype)
    attention = GroupedQueryAttention(6, 3, 1, causal=False, bias=True, init=init)
    node = Block(6, attention, FFN(6, 5, 6, gate="geglu", bias=True, init=init), init=init)
    init.jitter(node, 0.1)
    return node, (init.normal(2, 5, 6), init.uniform(2, 1, 5, 5) > -0.8)
