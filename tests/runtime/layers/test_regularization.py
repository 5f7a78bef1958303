"""Dropout: modes, rates, and the mask's shape."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cachelint.runtime.layers.regularization import dropout, feature_dropout
from cachelint.runtime.layers.regularization.dropout import Dropout
from cachelint.runtime.layers.regularization.feature_dropout import FeatureDropout
from tests.runtime.layers.conformance import matches

BOTH = pytest.mark.parametrize("kind", [Dropout, FeatureDropout])


@settings(max_examples=20, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=2, max_size=4).map(tuple),
    rate=st.floats(0, 0.9),
    seed=st.integers(0, 99),
)
def test_any_shape_and_rate(shape: tuple[int, ...], rate: float, seed: int) -> None:
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    matches(lambda _: (Dropout(rate), (x,)), dropout.reference, seed)
    matches(lambda _: (FeatureDropout(rate), (x,)), feature_dropout.reference, seed)


@BOTH
def test_eval_passes_the_input_itself_and_clears_the_mask(kind) -> None:
    node, x = kind(0.5), torch.ones(3, 4)
    node.forward(x)
    assert node.mask is not None
    assert node.eval().forward(x) is x
    assert node.mask is None
    grad = torch.ones(3, 4)
    assert node.train().backward(grad, x)[0] is grad


@BOTH
def test_what_forward_did_decides_what_backward_does(kind) -> None:
    node, x = kind(0.5, generator=torch.Generator().manual_seed(1)), torch.ones(6, 8)
    y = node.forward(x)
    (dx,) = node.eval().backward(torch.ones(6, 8), x)
    assert torch.equal(dx, y)
    assert 0 < int((dx == 0).sum()) < dx.numel()


def test_rate_and_scale_in_the_large() -> None:
    torch.manual_seed(0)
    y = Dropout(0.3).forward(torch.ones(100_000))
    assert abs(float((y == 0).float().mean()) - 0.3) < 0.01
    assert abs(float(y.mean()) - 1) < 0.01


def test_one_draw_for_each_feature() -> None:
    torch.manual_seed(0)
    node = FeatureDropout(0.5)
    y = node.forward(torch.ones(3, 40, 2, 2))
    assert torch.equal(y, y[:1, :, :1, :1].expand_as(y))
    assert node.mask is not None
    assert node.mask.numel() == 40


def test_a_generator_makes_draws_repeatable() -> None:
    masks = [Dropout(0.5, generator=torch.Generator().manual_seed(7)).forward(torch.ones(50)) for _ in range(2)]
    assert torch.equal(*masks)


@BOTH
@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_rejects_what_is_no_rate(kind, rate: float) -> None:
    with pytest.raises(ValueError, match="rate must be"):
        kind(rate)


def test_feature_dropout_needs_two_axes() -> None:
    with pytest.raises(ValueError, match="two axes"):
        FeatureDropout().forward(torch.ones(3))
