"""Attention: masks, grouped heads, the fused kernels, and what is left behind on each path."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from cachelint.runtime.harness import compare, plain, run_backward, run_forward, upstream
from cachelint.runtime.layers.attention import (
    grouped_query_attention,
    multi_head_latent_attention,
    scaled_dot_product_attention,
)
from cachelint.runtime.layers.attention.global_attention import GlobalAttention
from cachelint.runtime.layers.attention.grouped_query_attention import GroupedQueryAttention
from cachelint.runtime.layers.attention.local_attention import LocalAttention
from cachelint.runtime.layers.attention.masks import band
from cachelint.runtime.layers.attention.multi_head_latent_attention import MultiHeadLatentAttention
from cachelint.runtime.layers.attention.scaled_dot_product_attention import ScaledDotProductAttention
from cachelint.runtime.layers.init import Init
from tests.runtime.layers.conformance import matches

seeds = st.integers(0, 10_000)
few = settings(max_examples=25, deadline=None)


@few
@given(
    lead=st.lists(st.integers(1, 3), max_size=3).map(tuple),
    queries=st.integers(1, 6),
    more=st.integers(-3, 4),
    dim=st.integers(1, 9),
    causal=st.booleans(),
    window=st.none() | st.integers(0, 4),
    mask=st.sampled_from(["none", "bool", "additive"]),
    fused=st.booleans(),
    seed=seeds,
)
def test_any_shape_and_mask(lead, queries, more, dim, causal, window, mask, fused, seed) -> None:
    keys = max(1, queries + more)

    def make(seed: int):
        init = Init.seeded(seed, dtype=torch.float64)
        node = ScaledDotProductAttention(causal=causal, window=window, fused=fused and len(lead) in (1, 2))
        inputs = (init.normal(*lead, queries, dim), init.normal(*lead, keys, dim), init.normal(*lead, keys, dim))
        allowed = init.uniform(*lead[:1], *(1,) * (len(lead) - 1), queries, keys) > -0.5
        return node, inputs if mask == "none" else (*inputs, allowed)

    if mask != "additive":
        matches(make, scaled_dot_product_attention.reference, seed)
        return
    node, (q, k, v, allowed) = make(seed)
    bias = torch.where(allowed, 0.5, float("-inf"))
    outputs = [node.forward(q, k, v, m) for m in (allowed, bias)]
    torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("fused", [True, False])
def test_output_is_that_of_torch(dtype: torch.dtype, fused: bool) -> None:
    init = Init.seeded(0, dtype=dtype)
    q, k, v = init.normal(2, 3, 7, 16), init.normal(2, 3, 7, 16), init.normal(2, 3, 7, 16)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    for mask, causal in ((None, True), (init.uniform(2, 1, 7, 7) > -0.3, False), (init.normal(3, 7, 7), False)):
        want = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)
        got = ScaledDotProductAttention(causal=causal, fused=fused).forward(q, k, v, mask)
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def test_band_has_the_last_query_at_the_last_key() -> None:
    device = torch.device("cpu")
    assert band(2, 4, causal=False, window=None, device=device) is None
    causal = band(2, 4, causal=True, window=None, device=device)
    assert causal.int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    windowed = band(2, 4, causal=True, window=1, device=device)
    assert windowed.int().tolist() == [[0, 1, 1, 0], [0, 0, 1, 1]]
    both_sides = band(3, 3, causal=False, window=1, device=device)
    assert both_sides.int().tolist() == [[1, 1, 0], [1, 1, 1], [0, 1, 1]]


def test_a_query_without_keys_gives_zeros_and_no_gradient() -> None:
    for fused in (True, False):
        node, inputs = scaled_dot_product_attention.example_fused_mask()
        node.fused = fused
        y = node.forward(*inputs)
        assert torch.equal(y[0, 1], torch.zeros_like(y[0, 1]))
        dq, dk, dv, dmask = node.backward(torch.ones_like(y), *inputs)
        assert dmask is None
        assert torch.equal(dq[0, 1], torch.zeros_like(dq[0, 1]))
        assert all(g.isfinite().all() for g in (dq, dk, dv))


def test_each_path_clears_what_the_other_leaves() -> None:
    node, inputs = scaled_dot_product_attention.example_fused()
    for fused in (False, True, False, True):
        node.fused = fused
        node.forward(*inputs)
        assert (node.attention_weights is None) == fused
        assert (node.output is not None) == fused
        assert (node.logsumexp is not None) == fused


def test_a_fused_step_after_a_plain_one_has_the_gradients_of_its_own() -> None:
    node, first = scaled_dot_product_attention.example_fused(0)
    _, second = scaled_dot_product_attention.example_fused(1)
    node.fused = False
    node.forward(*first)
    node.fused = True
    result = run_forward(node, second, 1)
    got = run_backward(node, result, upstream((result,), 1), second)
    want = plain(scaled_dot_product_attention.example_fused, 1).inputs
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_the_kernels_keep_less_than_the_weights() -> None:
    init = Init.seeded(0)
    q, k, v = (init.normal(1, 2, 64, 8) for _ in range(3))
    node = ScaledDotProductAttention()
    node.forward(q, k, v)
    kept = node.output.numel() + node.logsumexp.numel()
    assert kept == 2 * 64 * 8 + 2 * 64 < 2 * 64 * 64


def test_asking_for_kernels_where_there_are_none() -> None:
    x = torch.ones(2, 3, 4)
    with pytest.raises(ValueError, match=r"no fused attention kernel for torch.float32 \(2, 3, 4\) on cpu"):
        ScaledDotProductAttention(fused=True).forward(x, x, torch.ones(2, 3, 5))


@few
@given(
    groups=st.integers(1, 3),
    rep=st.integers(1, 3),
    half=st.integers(1, 3),
    length=st.integers(1, 5),
    window=st.none() | st.integers(0, 3),
    flags=st.tuples(*[st.booleans()] * 4),
    seed=seeds,
)
def test_grouped_query_attention_in_any_configuration(groups, rep, half, length, window, flags, seed) -> None:
    causal, qk_norm, bias, fused = flags

    def make(seed: int):
        init = Init.seeded(seed, dtype=torch.float64)
        node = GroupedQueryAttention(
            5,
            groups * rep,
            groups,
            head_dim=2 * half,
            causal=causal,
            window=window,
            qk_norm=qk_norm,
            bias=bias,
            fused=fused,
            init=init,
        )
        init.jitter(node, 0.1)
        return node, (init.normal(2, length, 5),)

    matches(make, grouped_query_attention.reference, seed)


def test_each_group_of_query_heads_shares_its_own_key_head() -> None:
    """At Hq = 4, Hkv = 2 the order of the repeated heads shows."""
    init = Init.seeded(0, dtype=torch.float64)
    node = GroupedQueryAttention(8, 4, 2, causal=False, rope_base=None, fused=False, init=init)
    x = init.normal(2, 3, 8)
    q, k, v = (
        F.linear(x, layer.linear.weight.value.T).view(2, 3, -1, 2).transpose(1, 2)
        for layer in (node.wq, node.wk, node.wv)
    )
    want = F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2)
    torch.testing.assert_close(node.forward(x), node.wo.forward(want), rtol=1e-12, atol=1e-12)


@few
@given(
    heads=st.integers(1, 3),
    latent=st.integers(1, 4),
    rope=st.sampled_from([0, 2, 4]),
    length=st.integers(2, 5),
    flags=st.tuples(*[st.booleans()] * 2),
    seed=seeds,
)
def test_latent_attention_in_any_configuration(heads, latent, rope, length, flags, seed) -> None:
    causal, fused = flags

    def make(seed: int):
        init = Init.seeded(seed, dtype=torch.float64)
        node = MultiHeadLatentAttention(5, heads, 4, latent, rope_dim=rope, causal=causal, fused=fused, init=init)
        init.jitter(node, 0.1)
        return node, (init.normal(2, length, 5),)

    matches(make, multi_head_latent_attention.reference, seed)


@pytest.mark.parametrize("fused", [True, False])
def test_local_attention_with_a_wide_window_is_global_attention(fused: bool) -> None:
    def local(seed: int):
        init = Init.seeded(seed, dtype=torch.float64)
        return LocalAttention(8, 4, 2, 5, causal=True, fused=fused, init=init), (init.normal(2, 5, 8),)

    def everywhere(seed: int):
        init = Init.seeded(seed, dtype=torch.float64)
        return GlobalAttention(8, 4, 2, fused=fused, init=init), (init.normal(2, 5, 8),)

    assert compare(plain(local), plain(everywhere))[0].error < 1e-12


def test_heads_that_cannot_be_grouped_are_refused() -> None:
    with pytest.raises(ValueError, match="4 heads"):
        GroupedQueryAttention(8, 4, 3)
    with pytest.raises(ValueError, match="window"):
        LocalAttention(8, 4, 2, -1)
