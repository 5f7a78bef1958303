"""Normalizations: shapes, options, beside torch's own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from cachelint.runtime.harness import plain
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.normalization import (
    batch_normalization,
    layer_normalization,
    rms_norm,
    simplified_layer_normalization,
)
from cachelint.runtime.layers.normalization.batch_normalization import BatchNormalization
from cachelint.runtime.layers.normalization.layer_normalization import LayerNormalization
from cachelint.runtime.layers.normalization.rms_norm import RMSNorm
from cachelint.runtime.layers.normalization.simplified_layer_normalization import SimplifiedLayerNormalization
from tests.runtime.layers.conformance import matches

leads = st.lists(st.integers(1, 4), max_size=3).map(tuple)
seeds = st.integers(0, 10_000)
few = settings(max_examples=20, deadline=None)


@few
@given(lead=leads, size=st.integers(2, 9), eps=st.sampled_from([1e-6, 1e-2]), bias=st.booleans(), seed=seeds)
def test_layer_normalization_on_any_shape(lead, size: int, eps: float, bias: bool, seed: int) -> None:
    def make(seed: int):
        init = Init.seeded(seed, dtype=torch.float64)
        node = LayerNormalization(size, eps, bias=bias, init=init)
        init.jitter(node)
        return node, (init.normal(*lead, size) + 2,)

    matches(make, layer_normalization.reference, seed)


@few
@given(lead=leads, size=st.integers(1, 9), eps=st.sampled_from([1e-6, 1e-2]), kind=st.integers(0, 2), seed=seeds)
def test_rms_norms_on_any_shape(lead, size: int, eps: float, kind: int, seed: int) -> None:
    def make(seed: int):
        init = Init.seeded(seed, dtype=torch.float64)
        node = (
            SimplifiedLayerNormalization(size, eps, init=init)
            if kind == 2
            else RMSNorm(size, eps, fused=bool(kind), init=init)
        )
        init.jitter(node)
        return node, (init.normal(*lead, size),)

    matches(make, simplified_layer_normalization.reference if kind == 2 else rms_norm.reference, seed)


@few
@given(batch=st.integers(1, 4), channels=st.integers(1, 5), rest=leads, seed=seeds)
def test_batch_normalization_on_any_shape(batch: int, channels: int, rest, seed: int) -> None:
    def make(seed: int):
        init = Init.seeded(seed, dtype=torch.float64)
        x, scale, bias, mean = init.normal(batch, channels, *rest), *(init.normal(channels) for _ in range(3))
        return BatchNormalization(), (x, scale, bias, mean, init.uniform(channels, low=0.5, high=2.0))

    matches(make, batch_normalization.reference, seed)


def test_batch_normalization_is_that_of_torch_in_eval_mode() -> None:
    node, (x, scale, bias, mean, variance) = batch_normalization.example()
    want = F.batch_norm(x, mean, variance, scale, bias, training=False, eps=node.eps)
    torch.testing.assert_close(node.forward(x, scale, bias, mean, variance), want, rtol=1e-12, atol=1e-14)


def test_batch_normalization_keeps_precision_around_a_large_mean() -> None:
    x = torch.tensor([[4096.0], [4097.0]])
    one, zero = torch.ones(1), torch.zeros(1)
    y = BatchNormalization(0.0).forward(x, one, zero, one * 4096, one)
    assert y.tolist() == [[0.0], [1.0]]


def test_layer_normalization_of_a_constant_row_is_finite() -> None:
    node = LayerNormalization(4)
    x = torch.full((2, 4), 3.0)
    assert torch.equal(node.forward(x), torch.zeros(2, 4))
    assert node.backward(torch.ones(2, 4), x)[0].isfinite().all()


@pytest.mark.parametrize("module", [layer_normalization, rms_norm, simplified_layer_normalization])
def test_backward_needs_no_forward(module) -> None:
    node, (x,) = module.example(3)
    grad = Init.seeded(1, dtype=torch.float64).normal(*x.shape)
    alone = node.backward(grad, x)[0]
    other, _ = module.example(3)
    other.forward(x)
    assert torch.equal(alone, other.backward(grad, x)[0])


def test_fused_and_plain_rms_norm_agree_and_neither_leaves_anything() -> None:
    def make(fused: bool):
        init = Init.seeded(0, dtype=torch.float64)
        return RMSNorm(7, fused=fused, init=init), (init.normal(3, 7),)

    fused, written_out = plain(lambda _: make(True)), plain(lambda _: make(False))
    torch.testing.assert_close(fused.outputs[0], written_out.outputs[0], rtol=1e-14, atol=1e-14)
    assert torch.equal(fused.inputs[0], written_out.inputs[0])
    node, (x,) = make(True)
    before = dict(vars(node))
    node.forward(x)
    assert vars(node) == before
