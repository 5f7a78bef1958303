"""Embeddings: shapes, positions, half precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.embeddings import rotary_positional_embedding, token_embedding
from cachelint.runtime.layers.embeddings.rotary_positional_embedding import (
    RotaryPositionalEmbedding,
    document_positions,
)
from cachelint.runtime.layers.embeddings.token_embedding import TokenEmbedding
from cachelint.runtime.layers.init import Init
from tests.runtime.layers.conformance import matches

few = settings(max_examples=20, deadline=None)
shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)
seeds = st.integers(0, 10_000)


@few
@given(shape=shapes, tokens=st.integers(1, 6), padding=st.booleans(), seed=seeds)
def test_token_embedding_on_any_shape(shape: tuple[int, ...], tokens: int, padding: bool, seed: int) -> None:
    def make(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        init = Init.seeded(seed, dtype=torch.float64)
        ids = torch.randint(tokens, shape, generator=init.generator)
        return TokenEmbedding(tokens, 3, padding=tokens - 1 if padding else None, init=init), (ids,)

    matches(make, token_embedding.reference, seed)


@few
@given(
    lead=shapes,
    length=st.integers(1, 5),
    half=st.integers(1, 3),
    rest=st.integers(0, 3),
    offset=st.integers(0, 100_000),
    interleaved=st.booleans(),
    seed=seeds,
)
def test_rotation_on_any_shape(
    lead: Any, length: int, half: int, rest: int, offset: int, interleaved: bool, seed: int
) -> None:
    def make(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        node = RotaryPositionalEmbedding(2 * half, offset=offset, interleaved=interleaved)
        return node, (Init.seeded(seed, dtype=torch.float64).normal(*lead, length, 2 * half + rest),)

    matches(make, rotary_positional_embedding.reference, seed)


@given(length=st.integers(0, 9), starts=st.sets(st.integers(0, 9)))
def test_documents_count_from_zero_again(length: int, starts: set[int]) -> None:
    wanted: list[int] = []
    for index in range(length):
        wanted.append(0 if index == 0 or index in starts else wanted[-1] + 1)
    assert document_positions(length, sorted(starts, reverse=True)).tolist() == wanted


def test_rotation_keeps_lengths_and_depends_on_distance_alone() -> None:
    q, k = Init.seeded(0, dtype=torch.float64).normal(2, 1, 1, 8)

    def score(at: int, to: int) -> float:
        rotated = [RotaryPositionalEmbedding(offset=o).forward(x) for o, x in ((at, q), (to, k))]
        return float((rotated[0] * rotated[1]).sum())

    assert score(3, 1) == pytest.approx(score(10, 8), abs=1e-12)
    assert score(3, 1) != pytest.approx(score(3, 2), abs=1e-3)
    assert float(RotaryPositionalEmbedding(offset=5).forward(q).norm()) == pytest.approx(float(q.norm()))


def test_one_rotation_serves_queries_and_keys_of_different_lengths() -> None:
    node = RotaryPositionalEmbedding(offset=1)
    q, k = torch.randn(2, 4, 6), torch.randn(3, 2, 5, 6)
    rotated = [node.forward(q), node.forward(k)]  # both calls before either backward
    for x, y in zip((q, k), rotated, strict=True):
        assert torch.allclose(node.backward(y, x)[0], x, atol=1e-5)


@pytest.mark.parametrize("rotary", [3, 8])
def test_a_rotation_that_does_not_fit_is_refused(rotary: int) -> None:
    with pytest.raises(ValueError, match="features"):
        RotaryPositionalEmbedding(rotary).forward(torch.rand(2, 4))


def test_half_precision_sums_rows_in_float32() -> None:
    node = TokenEmbedding(2, 1, init=Init(dtype=torch.bfloat16))
    grad = torch.full((1000, 1), 0.01, dtype=torch.bfloat16)
    node.backward(grad, torch.zeros(1000, dtype=torch.int64))
    assert node.table.grad is not None
    assert float(node.table.grad[0]) == pytest.approx(1000 * float(grad[0]), rel=5e-3)


def test_the_padding_row_starts_at_zero_and_stays() -> None:
    node = TokenEmbedding(3, 2, padding=1)
    ids = torch.tensor([1, 2, 1])
    assert not node.forward(ids)[0].any()
    node.backward(torch.ones(3, 2), ids)
    assert node.table.grad is not None
    assert node.table.grad.tolist() == [[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
