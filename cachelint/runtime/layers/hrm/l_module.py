"""The fast module of the hierarchical reasoning model."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.attention.grouped_query_attention import GroupedQueryAttention
from cachelint.runtime.layers.core.ffn import FFN
from cachelint.runtime.layers.hrm._sequence import as_sequence
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.transformer import block
from cachelint.runtime.layers.transformer.block import Block


class LModule(Node):
    """``block(h_state + projected_input)``: both ``[B, M]`` or ``[B, S, M]``, of one shape.

    The block's live input is the sum of two live inputs, so backward adds them again and nothing is kept. Source: Wang
    et al., "Hierarchical Reasoning Model", arXiv:2506.21734.
    """

    def __init__(self, block: Node) -> None:
        self.block = block

    def forward(self, h_state: Tensor, projected_input: Tensor) -> Tensor:
        """Return the block's result."""
        y: Tensor = self.block.forward(as_sequence(h_state + projected_input)).reshape(h_state.shape)
        return y

    def backward(self, grad: Tensor, h_state: Tensor, projected_input: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of both inputs, one tensor; add those of the block."""
        (dcombined,) = self.block.backward(as_sequence(grad), as_sequence(h_state + projected_input))
        dx: Tensor = dcombined.reshape(h_state.shape)
        return dx, dx


def reference(node: LModule, h_state: Tensor, projected_input: Tensor) -> Tensor:
    """Return the same step in plain torch operators, for a ``Block``."""
    assert isinstance(node.block, Block)
    combined = as_sequence(torch.add(h_state, projected_input))
    return block.reference(node.block, combined).reshape(h_state.shape)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[LModule, tuple[Tensor, Tensor]]:
    """Return a node and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    inner = Block(8, GroupedQueryAttention(8, 4, 2, init=init), FFN(8, 6, 8, init=init), init=init)
    init.jitter(inner, 0.1)
    return LModule(inner), (init.normal(2, 8), init.normal(2, 8))


def example_sequence(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[LModule, tuple[Tensor, ...]]:
    """Return a node and sequences for it."""
    init = Init.seeded(seed, device, dtype)
    inner = Block(4, GroupedQueryAttention(4, 2, 1, init=init), FFN(4, 3, 4, init=init), init=init)
    init.jitter(inner, 0.1)
    return LModule(inner), (init.normal(2, 3, 4), init.normal(2, 3, 4))
