"""Transpose, reduce-sum, functional GELU and the time-series engines."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cachelint.runtime.layers.functional.gelu_backward import GELUBackward
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.reducesum import reduce_sum
from cachelint.runtime.layers.reducesum.reduce_sum import ReduceSum
from cachelint.runtime.layers.timeseries import d_linear, n_beats, n_linear
from cachelint.runtime.layers.timeseries.d_linear import DLinear, moving_average
from cachelint.runtime.layers.timeseries.n_beats import NBeats
from cachelint.runtime.layers.timeseries.n_linear import NLinear
from cachelint.runtime.layers.transpose import transpose
from cachelint.runtime.layers.transpose.transpose import Transpose
from fixtures.legacy.timeseries.d_linear import DLinear as LegacyDLinear
from fixtures.legacy.timeseries.n_beats import NBeats as LegacyNBeats
from fixtures.legacy.timeseries.n_linear import NLinear as LegacyNLinear
from tests.runtime.layers.conformance import matches

seeds = st.integers(0, 10_000)
few = settings(max_examples=20, deadline=None)
ranked = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def inputs(shape: tuple[int, ...]):
    return lambda seed: (Init.seeded(seed, dtype=torch.float64).normal(*shape),)


@few
@given(data=st.data(), shape=ranked, seed=seeds)
def test_transpose_with_any_permutation(data, shape, seed: int) -> None:
    perm = data.draw(st.permutations(range(len(shape))))
    signed = tuple(axis - len(shape) if data.draw(st.booleans()) else axis for axis in perm)
    matches(lambda s: (Transpose(signed), inputs(shape)(s)), transpose.reference, seed)


def test_transpose_without_a_permutation_fits_every_rank() -> None:
    node = Transpose()
    for shape in ((2, 3), (2, 3, 4)):
        x = torch.ones(shape)
        assert node.forward(x).shape == shape[::-1]
        assert node.backward(torch.ones(shape[::-1]), x)[0].shape == shape


@pytest.mark.parametrize("perm", [(0, 0), (0, 1, 2), (1,)])
def test_transpose_refuses_what_is_no_permutation(perm) -> None:
    with pytest.raises(ValueError, match="does not permute 2 axes"):
        Transpose(perm).forward(torch.ones(2, 3))


@few
@given(data=st.data(), shape=ranked, keepdims=st.booleans(), seed=seeds)
def test_reduce_sum_over_any_axes(data, shape, keepdims: bool, seed: int) -> None:
    axes = data.draw(st.lists(st.integers(-len(shape), len(shape) - 1), max_size=len(shape)))
    matches(lambda s: (ReduceSum(axes, keepdims=keepdims), inputs(shape)(s)), reduce_sum.reference, seed)


def test_functional_gelu_runs_no_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("a forward ran inside backward")

    x = torch.linspace(-1, 1, 5)
    monkeypatch.setattr(torch.nn.functional, "gelu", never)
    assert GELUBackward().backward(torch.ones(5), x)[0].isfinite().all()


@few
@given(length=st.integers(1, 7), kernel=st.sampled_from([1, 3, 5, 9]), flags=st.booleans(), seed=seeds)
def test_linear_engines_on_any_length(length: int, kernel: int, flags: bool, seed: int) -> None:
    def make(kind):
        def example(seed: int):
            init = Init.seeded(seed, dtype=torch.float64)
            node = kind(init)
            init.jitter(node)
            return node, (init.normal(2, 3, length),)

        return example

    matches(make(lambda init: DLinear(length, 2, kernel=kernel, bias=flags, init=init)), d_linear.reference, seed)
    matches(make(lambda init: NLinear(length, 2, bias=flags, init=init)), n_linear.reference, seed)


@few
@given(length=st.integers(1, 5), blocks=st.integers(1, 3), layers=st.integers(1, 3), seed=seeds)
def test_n_beats_of_any_depth(length: int, blocks: int, layers: int, seed: int) -> None:
    def make(seed: int):
        init = Init.seeded(seed, dtype=torch.float64)
        node = NBeats(length, 2, blocks=blocks, layers=layers, width=6, init=init)
        init.jitter(node)
        return node, (init.normal(3, length),)

    matches(make, n_beats.reference, seed)


def test_moving_average_of_a_line_is_the_line_inside() -> None:
    x = torch.arange(8.0, dtype=torch.float64).view(1, 1, 8)
    torch.testing.assert_close(moving_average(x, 3)[..., 1:-1], x[..., 1:-1])


def test_d_linear_refuses_an_even_kernel() -> None:
    with pytest.raises(ValueError, match="odd"):
        DLinear(4, 2, kernel=4)


@pytest.mark.parametrize(
    ("build", "build_legacy", "shape"),
    [
        (
            lambda i: DLinear(6, 2, kernel=3, bias=False, init=i),
            lambda i: LegacyDLinear(6, 2, kernel=3, init=i),
            (2, 3, 6),
        ),
        (lambda i: NLinear(5, 2, bias=False, init=i), lambda i: LegacyNLinear(5, 2, init=i), (2, 3, 5)),
        (
            lambda i: NBeats(4, 2, blocks=1, layers=1, width=5, init=i),
            lambda i: LegacyNBeats(4, 2, blocks=1, width=5, init=i),
            (3, 4),
        ),
    ],
    ids=["DLinear", "NLinear", "NBeats"],
)
def test_engines_give_what_their_legacy_forms_give(build, build_legacy, shape) -> None:
    node, old = (make(Init.seeded(0, dtype=torch.float64)) for make in (build, build_legacy))
    init = Init.seeded(1, dtype=torch.float64)
    x, grad = init.normal(*shape), init.normal(*shape[:-1], 2)
    torch.testing.assert_close(node.forward(x), old.forward(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(node.backward(grad, x)[0], old.backward(grad, x)[0], rtol=1e-12, atol=1e-12)
