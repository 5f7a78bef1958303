"""Losses: shapes, options, edges, beside torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from cachelint.runtime import Node
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.loss import bce_loss, cross_entropy_loss, mse, routing_contrastive
from cachelint.runtime.layers.loss.bce_loss import BCELoss
from cachelint.runtime.layers.loss.corr_loss import CorrLoss
from cachelint.runtime.layers.loss.cross_entropy_loss import CrossEntropyLoss
from cachelint.runtime.layers.loss.mse import MSE
from cachelint.runtime.layers.loss.routing_contrastive import RoutingContrastive
from tests.runtime.layers.conformance import matches

few = settings(max_examples=15, deadline=None)
shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)
reductions = st.sampled_from(["mean", "sum", "none"])
seeds = st.integers(0, 10_000)
ONE = torch.ones((), dtype=torch.float64)


@few
@given(shape=shapes, reduction=reductions, seed=seeds)
def test_pairwise_losses_on_any_shape(shape: tuple[int, ...], reduction: Any, seed: int) -> None:
    def make(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        init = Init.seeded(seed, dtype=torch.float64)
        node = MSE(reduction) if seed % 2 else BCELoss(reduction, positive_weight=0.5)
        return node, (init.uniform(*shape, low=0.05, high=0.95), init.uniform(*shape, low=0.05, high=0.95))

    matches(make, mse.reference if seed % 2 else bce_loss.reference, seed)


@few
@given(
    shape=shapes,
    classes=st.integers(2, 6),
    reduction=reductions,
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    weighted=st.booleans(),
    seed=seeds,
)
def test_cross_entropy_on_any_shape(
    shape: tuple[int, ...], classes: int, reduction: Any, smoothing: float, weighted: bool, seed: int
) -> None:
    def make(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        init = Init.seeded(seed, dtype=torch.float64)
        weight = init.uniform(classes, low=0.1, high=2.0) if weighted else None
        targets = torch.randint(classes, shape, generator=init.generator)
        targets = torch.where(torch.rand(shape, generator=init.generator) < 0.2, -100, targets)
        if (targets == -100).all():
            targets = torch.zeros_like(targets)
        node = CrossEntropyLoss(reduction, weight=weight, label_smoothing=smoothing)
        return node, (init.normal(*shape, classes), targets)

    matches(make, cross_entropy_loss.reference, seed)


@few
@given(batch=st.integers(1, 3), heads=st.integers(1, 4), length=st.integers(2, 5), seed=seeds)
def test_contrast_on_any_shape(batch: int, heads: int, length: int, seed: int) -> None:
    def make(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        return RoutingContrastive(0.7), (Init.seeded(seed, dtype=torch.float64).normal(batch, heads, length),)

    matches(make, routing_contrastive.reference, seed)


def test_correlation_is_that_of_torch() -> None:
    predictions, targets = Init.seeded(0, dtype=torch.float64).normal(2, 9)
    loss = CorrLoss().forward(predictions, targets)
    assert float(loss) == pytest.approx(-float(torch.corrcoef(torch.stack((predictions, targets)))[0, 1]), abs=1e-7)


@pytest.mark.parametrize("make", [MSE, BCELoss, CorrLoss])
def test_shapes_that_differ_are_refused(make: Callable[[], Node]) -> None:
    with pytest.raises(ValueError, match="shape"):
        make().forward(torch.rand(3, 1), torch.rand(3))


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(ValueError, match="reduction"):
        MSE("median")  # type: ignore[arg-type]


def test_targets_that_do_not_fit_the_logits_are_refused() -> None:
    with pytest.raises(ValueError, match="targets"):
        CrossEntropyLoss().forward(torch.rand(2, 3, 5), torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_bce_is_flat_where_the_clamp_is_active(dtype: torch.dtype) -> None:
    node, given = BCELoss(), (torch.tensor([0.0, 1.0, 0.5], dtype=dtype), torch.tensor([1.0, 0.0, 1.0], dtype=dtype))
    assert node.forward(*given).isfinite()
    dp, dt = node.backward(torch.ones((), dtype=dtype), *given)
    assert dp[:2].tolist() == [0.0, 0.0]
    assert float(dp[2]) == pytest.approx(-2 / 3, rel=1e-2)
    assert dt.isfinite().all()


def test_correlation_with_a_constant_is_zero_with_a_finite_gradient() -> None:
    constant, other = torch.full((4, 2), 0.5, dtype=torch.float64), torch.rand(4, 2, dtype=torch.float64)
    node = CorrLoss()
    assert node.forward(constant, other) == 0.0
    dp, dt = node.backward(ONE, constant, other)
    assert dp.isfinite().all()
    assert not dt.any()


def test_one_head_has_nothing_to_contrast() -> None:
    scores = torch.rand(2, 1, 5, dtype=torch.float64)
    assert RoutingContrastive().forward(scores) == 0.0
    assert not RoutingContrastive().backward(ONE, scores)[0].any()


def test_contrast_follows_the_upstream_gradient() -> None:
    scores = Init.seeded(0, dtype=torch.float64).normal(2, 3, 4)
    node = RoutingContrastive()
    assert torch.allclose(node.backward(-3 * ONE, scores)[0], -3 * node.backward(ONE, scores)[0])


def test_cross_entropy_without_a_target_is_zero() -> None:
    logits, targets = torch.rand(3, 5, dtype=torch.float64), torch.full((3,), -100)
    node = CrossEntropyLoss()
    assert node.forward(logits, targets) == 0.0
    assert not node.backward(ONE, logits, targets)[0].any()


def test_cross_entropy_of_large_logits_is_finite() -> None:
    logits, targets = torch.tensor([[1e4, -1e4, 0.0]], dtype=torch.float64), torch.tensor([1])
    node = CrossEntropyLoss()
    assert float(node.forward(logits, targets)) == pytest.approx(2e4)
    assert node.backward(ONE, logits, targets)[0].tolist() == [[1.0, -1.0, 0.0]]


def test_half_precision_loses_little_against_torch_in_float32() -> None:
    init = Init.seeded(0, dtype=torch.bfloat16)
    logits, targets = init.normal(64, 1000), torch.randint(1000, (64,), generator=init.generator)
    node = CrossEntropyLoss()
    exact = F.cross_entropy(logits.float(), targets)
    assert float(node.forward(logits, targets)) == pytest.approx(float(exact), rel=4e-3)


def test_cross_entropy_with_masked_classes() -> None:
    logits = torch.tensor([[-torch.inf, 1.0, 2.0], [0.5, -torch.inf, 1.0]], dtype=torch.float64)
    targets = torch.tensor([1, -100])
    node = CrossEntropyLoss()
    leaf = logits.clone().requires_grad_()
    want = F.cross_entropy(leaf, targets)
    want.backward()
    torch.testing.assert_close(node.forward(logits, targets), want.detach())
    torch.testing.assert_close(node.backward(ONE, logits, targets)[0], leaf.grad)
