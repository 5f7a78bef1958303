"""Quantised weights: packing, the cache over the steps, its invalidation."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cachelint.runtime import Arena, Builder, Node
from cachelint.runtime.layers.core import mat_mul_nbits
from cachelint.runtime.layers.core.mat_mul_nbits import MatMulNBits, quantise, unpack
from cachelint.runtime.layers.init import Init
from tests.runtime.layers.conformance import matches

few = settings(max_examples=25, deadline=None)
bit_counts = st.sampled_from([2, 4, 8])


@few
@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 9),
    bits=bit_counts,
    groups=st.integers(1, 3),
    symmetric=st.booleans(),
    cache=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_any_shape(rows: int, columns: int, bits: int, groups: int, symmetric: bool, cache: bool, seed: int) -> None:
    groups = min(groups, columns)
    weight = Init.seeded(seed, dtype=torch.float64).normal(rows, columns)
    codes, scale, zero_point = quantise(weight, bits=bits, groups=groups, symmetric=symmetric)

    def make(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        node = MatMulNBits(codes, scale, zero_point, out_features=columns, bits=bits, cache=cache)
        return node, (Init.seeded(seed, dtype=torch.float64).normal(2, rows),)

    matches(make, mat_mul_nbits.reference, seed)
    node = MatMulNBits(codes, scale, zero_point, out_features=columns, bits=bits)
    spread = scale.repeat_interleave(-(-columns // groups), 1)[:, :columns]
    assert ((node.weight() - weight).abs() <= spread * (0.5 + 1e-9) + (0 if symmetric else 0.5 * spread)).all()


def test_codes_come_out_lowest_first() -> None:
    byte = torch.tensor([[0b11_10_01_00]], dtype=torch.uint8)
    assert unpack(byte, 2).tolist() == [[0, 1, 2, 3]]
    assert unpack(byte, 4).tolist() == [[0b0100, 0b1110]]
    assert unpack(byte, 8).tolist() == [[0b11100100]]


def test_the_middle_of_four_bits_is_eight() -> None:
    node = MatMulNBits(torch.tensor([[0x0F]], dtype=torch.uint8), torch.tensor(2.0), out_features=2)
    assert node.weight().tolist() == [[14.0, -16.0]]


def layer(seed: int = 0) -> MatMulNBits:
    codes, scale, zero_point = quantise(Init.seeded(seed).normal(3, 4))
    return MatMulNBits(codes, scale, zero_point, out_features=4)


def test_the_weight_is_made_once_and_survives_resets_until_it_is_invalidated() -> None:
    node, slab = layer(), Arena(1 << 14, ("cpu",), poison=True)
    builder = Builder(slab)
    graph = builder.build(builder.add(node, builder.input("x")))
    x, grad = torch.rand(2, 3), torch.rand(2, 4)
    wanted = x @ layer().weight(), grad @ layer().weight().mT
    kept = None
    for _ in range(3):
        assert torch.equal(graph.forward(x), wanted[0])
        assert kept is None or node.weight() is kept
        kept = node.weight()
        slab.reset()
        (dx,) = graph.backward(grad)
        assert dx is not None
        assert torch.equal(dx, wanted[1])
        slab.reset()
        assert slab.stats().pins == 1
    node.invalidate()
    assert slab.stats().pins == 0


def test_a_new_weight_is_seen() -> None:
    node, other, x = layer(0), layer(1), torch.rand(2, 3)
    assert not torch.equal(node.forward(x), other.forward(x))
    node.load(other.codes, other.scale, other.zero_point)
    assert torch.equal(node.forward(x), other.forward(x))
    node.scale.mul_(2.0)
    node.invalidate()
    assert torch.allclose(node.forward(x), 2 * layer(1).forward(x))


def test_the_dtype_follows_the_scale() -> None:
    node = layer()
    node.forward(torch.rand(2, 3))
    assert node.to(dtype=torch.float64).weight().dtype is torch.float64
    assert node.codes.dtype is torch.uint8


@pytest.mark.parametrize(
    ("codes", "bits"),
    [(torch.zeros(2, 3, dtype=torch.uint8), 4), (torch.zeros(2, 2), 4), (torch.zeros(2, 2, dtype=torch.uint8), 3)],
)
def test_what_does_not_fit_is_refused(codes: Tensor, bits: int) -> None:
    with pytest.raises(ValueError, match=r"codes|bits"):
        MatMulNBits(codes, torch.tensor(1.0), out_features=4, bits=bits)
