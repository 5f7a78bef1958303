"""The slow module of the hierarchical reasoning model."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, Persistent, SaverAware
from cachelint.runtime.layers.attention.grouped_query_attention import GroupedQueryAttention
from cachelint.runtime.layers.core.ffn import FFN
from cachelint.runtime.layers.hrm._sequence import as_sequence
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept
from cachelint.runtime.layers.transformer import block
from cachelint.runtime.layers.transformer.block import Block


class HModule(SaverAware, Node):
    """``h = block(l_state + h_before)``: l_state ``[B, M]`` or ``[B, S, M]``.

    The state h is kept over the steps until ``reset_state``; it starts at zero. It gets no gradient (the one-step
    approximation of the model). Saved is the block's live input: by the time of backward the state has moved on.
    Source: Wang et al., "Hierarchical Reasoning Model", arXiv:2506.21734.

    Raises:
        ValueError: the state has another shape than l_state.
    """

    def __init__(self, block: Node) -> None:
        self.block = block
        self.state = Persistent(name="state")
        self.combined_input: Tensor | None = None

    def reset_state(self, state: Tensor | None = None) -> None:
        """Start the next step from ``state``, of the shape of l_state, or from zeros."""
        if state is None:
            self.state.invalidate()
        else:
            self.state.set(state.detach())

    def forward(self, l_state: Tensor) -> Tensor:
        """Return the new state."""
        state = self.state.get()
        if state is not None and state.shape != l_state.shape:
            raise ValueError(
                f"l_state {list(l_state.shape)} does not fit the state {list(state.shape)}: reset_state first"
            )
        combined_input = as_sequence(l_state if state is None else l_state + state)
        self.combined_input = combined_input if self.training else None
        self.save_for_backward(self.combined_input)
        after: Tensor = self.block.forward(combined_input).reshape(l_state.shape)
        self.state.set(after.detach())
        return after

    def backward(self, grad: Tensor, l_state: Tensor) -> tuple[Tensor]:
        """Return the gradient of l_state; add those of the block."""
        (dcombined,) = self.block.backward(as_sequence(grad), kept(self.combined_input, self))
        return (dcombined.reshape(l_state.shape),)


def reference(node: HModule, l_state: Tensor) -> Tensor:
    """Return the same step in plain torch operators, for a ``Block``; the state is read from the node."""
    assert isinstance(node.block, Block)
    state = node.state.get()
    combined = as_sequence(l_state if state is None else l_state + state)
    return block.reference(node.block, combined).reshape(l_state.shape)


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[HModule, tuple[Tensor]]:
    """Return a node with a state that isn't zero, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    inner = Block(8, GroupedQueryAttention(8, 4, 2, init=init), FFN(8, 6, 8, init=init), init=init)
    init.jitter(inner, 0.1)
    node = HModule(inner)
    node.reset_state(init.normal(2, 8))
    return node, (init.normal(2, 8),)


def example_sequence(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[HModule, tuple[Tensor, ...]]:
    """Return a node without a state, and a sequence for it."""
    init = Init.seeded(seed, device, dtype)
    inner = Block(4, GroupedQueryAttention(4, 2, 1, init=init), FFN(4, 3, 4, init=init), init=init)
    init.jitter(inner, 0.1)
    return HModule(inner), (init.normal(2, 3, 4),)
