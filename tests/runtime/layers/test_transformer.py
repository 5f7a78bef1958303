"""The transformer block as a composite: its children's live inputs, gradients and savers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cachelint.runtime import Arena, Builder, Node
from cachelint.runtime.harness import by_autograd, plain, worst
from cachelint.runtime.layers.activations.gelu import Gelu
from cachelint.runtime.layers.attention.grouped_query_attention import GroupedQueryAttention
from cachelint.runtime.layers.core.dense import Dense
from cachelint.runtime.layers.core.ffn import FFN
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.transformer import block
from cachelint.runtime.layers.transformer.block import Block
from tests.runtime.layers.conformance import matches


@settings(max_examples=10, deadline=None)
@given(
    batch=st.integers(1, 2),
    length=st.integers(1, 5),
    heads=st.sampled_from([(4, 2), (4, 1), (2, 2)]),
    masked=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_block_on_any_shape(batch: int, length: int, heads: tuple[int, int], masked: bool, seed: int) -> None:
    def make(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        init = Init.seeded(seed, dtype=torch.float64)
        node = Block(8, GroupedQueryAttention(8, *heads, init=init), FFN(8, 5, 8, init=init), init=init)
        init.jitter(node, 0.1)
        mask = (init.uniform(length, length) > -0.6) | torch.eye(length, dtype=torch.bool)
        return node, (init.normal(batch, length, 8), *([mask] if masked else []))

    matches(make, block.reference, seed)


def test_any_two_layers_can_be_the_children() -> None:
    def make(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        init = Init.seeded(seed, dtype=torch.float64)
        node = Block(3, Dense(3, 3, activation=Gelu(), init=init), Dense(3, 3, init=init), init=init)
        init.jitter(node)
        return node, (init.normal(2, 5, 3),)

    assert worst(plain(make), by_autograd(make)) < 1e-12


@pytest.mark.parametrize("fused", [False, True])
def test_two_blocks_in_a_graph_survive_the_reset(fused: bool) -> None:
    def blocks() -> list[Block]:
        init = Init.seeded(0, dtype=torch.float64)
        return [
            Block(8, GroupedQueryAttention(8, 4, 2, fused=fused, init=init), FFN(8, 6, 8, init=init), init=init)
            for _ in range(2)
        ]

    def run(slab: Arena | None) -> tuple[Tensor, Tensor, list[Tensor | None]]:
        nodes = blocks()
        builder = Builder(slab)
        hidden = builder.add(nodes[0], builder.input("x"))
        graph = builder.build(builder.add(nodes[1], hidden))
        init = Init.seeded(1, dtype=torch.float64)
        y = graph.forward(init.normal(2, 3, 8)).clone()
        if slab is not None:
            assert slab.stats().pins > 8
            slab.reset()
        (dx,) = graph.backward(init.normal(2, 3, 8))
        assert dx is not None
        assert slab is None or slab.stats().pins == 0
        return y, dx.clone(), [p.grad for p in graph.parameters()]

    wanted, got = run(None), run(Arena(1 << 20, ("cpu",), poison=True))
    assert torch.equal(got[0], wanted[0])
    assert torch.equal(got[1], wanted[1])
    assert all(torch.equal(a, b) for a, b in zip(got[2], wanted[2], strict=True) if a is not None and b is not None)
