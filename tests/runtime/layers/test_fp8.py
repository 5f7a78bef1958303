"""Eight-bit rounding and the linear map that uses it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cachelint.runtime.layers.fp8.fp8_linear import FP8Linear, round_trip
from cachelint.runtime.layers.init import Init

LIMIT = {"e4m3": 448.0, "e5m2": 57344.0}
STEP = {"e4m3": 2**-4, "e5m2": 2**-3}
formats = pytest.mark.parametrize("format", LIMIT)


@formats
@pytest.mark.parametrize("scaling", ["tensor", "row"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_rounding_is_close_and_settles(format: Any, scaling: Any, dtype: torch.dtype) -> None:
    x = Init.seeded(0, dtype=dtype).normal(5, 7)
    rounded = round_trip(x, format, scaling)
    assert rounded.dtype is dtype
    assert ((rounded - x).abs() <= STEP[format] * x.abs() + 1e-4 * x.abs().max()).all()
    assert torch.allclose(round_trip(rounded, format, scaling), rounded, rtol=2e-2)


@formats
def test_the_largest_magnitude_is_kept(format: Any) -> None:
    x = torch.tensor([[1e-3, -3.0], [1e-4, 2e-4]], dtype=torch.float64)
    assert float(round_trip(x, format)[0, 1]) == pytest.approx(-3.0)
    assert float(round_trip(x, format, "row")[1, 1]) == pytest.approx(2e-4)


def test_zeros_and_extremes_are_no_trouble() -> None:
    assert not round_trip(torch.zeros(3)).any()
    assert round_trip(torch.tensor([1e-38, 1e-45])).isfinite().all()
    assert round_trip(torch.tensor([3e38, -1e38])).isfinite().all()


def test_a_weight_update_is_seen_by_the_next_forward() -> None:
    node, x = FP8Linear(3, 4), torch.rand(2, 3)
    before = node.forward(x)
    kept = node.rounded_weight.get()
    assert torch.equal(node.forward(x), before)
    assert node.rounded_weight.get() is kept
    node.weight.value.mul_(2.0)
    assert torch.allclose(node.forward(x), 2 * before)
    node.weight.value = torch.zeros(4, 3)
    assert not node.forward(x).any()


def test_backward_is_that_of_the_plain_map() -> None:
    init = Init.seeded(0, dtype=torch.float64)
    rounded, plain = (FP8Linear(3, 4, enabled=on, init=Init.seeded(1, dtype=torch.float64)) for on in (True, False))
    x, grad = init.normal(2, 3), init.normal(2, 4)
    assert not torch.equal(rounded.forward(x), plain.forward(x))
    assert torch.allclose(rounded.forward(x), plain.forward(x), atol=0.2)
    assert torch.equal(rounded.backward(grad, x)[0], plain.backward(grad, x)[0])
    assert rounded.weight.grad is not None
    assert plain.weight.grad is not None
    assert torch.equal(rounded.weight.grad, plain.weight.grad)
