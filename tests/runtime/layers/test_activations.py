"""Activations: shapes, ranges, errors."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cachelint.runtime.layers.activations import erf, geglu, gelu, leaky_relu, relu, sigmoid, softmax, swiglu, tanh
from cachelint.runtime.layers.init import Init
from tests.runtime.layers.conformance import matches

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
nonempty = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
seeds = st.integers(0, 10_000)
few = settings(max_examples=25, deadline=None)

ELEMENTWISE = [
    (relu.ReLU, relu.reference),
    (tanh.Tanh, tanh.reference),
    (erf.Erf, erf.reference),
    (gelu.Gelu, gelu.reference),
    (lambda: gelu.Gelu("none"), gelu.reference),
    (leaky_relu.LeakyReLU, leaky_relu.reference),
    (sigmoid.Sigmoid, sigmoid.reference),
]


@few
@given(layer=st.sampled_from(ELEMENTWISE), shape=shapes, seed=seeds)
def test_elementwise_on_any_shape(layer, shape: tuple[int, ...], seed: int) -> None:
    make, reference = layer
    matches(lambda s: (make(), (Init.seeded(s, dtype=torch.float64).normal(*shape),)), reference, seed)


@few
@given(shape=nonempty, axis=st.integers(-4, 3), seed=seeds)
def test_softmax_on_any_axis(shape: tuple[int, ...], axis: int, seed: int) -> None:
    axis = axis % len(shape) - (len(shape) if axis < 0 else 0)
    matches(
        lambda s: (softmax.Softmax(axis), (Init.seeded(s, dtype=torch.float64).normal(*shape),)),
        softmax.reference,
        seed,
    )


@few
@given(lead=shapes, width=st.integers(1, 4), seed=seeds, gate=st.sampled_from([swiglu, geglu]))
def test_gated_units_on_any_shape(lead: tuple[int, ...], width: int, seed: int, gate) -> None:
    node = swiglu.SwiGLU if gate is swiglu else geglu.GeGLU
    matches(lambda s: (node(), (Init.seeded(s, dtype=torch.float64).normal(*lead, 2 * width),)), gate.reference, seed)


@pytest.mark.parametrize("node", [swiglu.SwiGLU(), geglu.GeGLU()], ids=lambda node: type(node).__name__)
def test_gated_units_reject_an_odd_axis(node) -> None:
    with pytest.raises(ValueError, match="even size, not 3"):
        node.forward(torch.ones(2, 3))


def test_gelu_rejects_an_unknown_approximation() -> None:
    with pytest.raises(ValueError, match="'erf'"):
        gelu.Gelu("erf")


def test_gelu_is_that_of_torch() -> None:
    x = torch.linspace(-6, 6, 101, dtype=torch.float64)
    for approximate in ("tanh", "none"):
        leaf = x.clone().requires_grad_()
        (want,) = torch.autograd.grad(torch.nn.functional.gelu(leaf, approximate=approximate).sum(), leaf)
        torch.testing.assert_close(gelu.gelu_derivative(x, approximate), want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_large_inputs_stay_finite(dtype: torch.dtype) -> None:
    x = torch.tensor([-1000.0, -90.0, 90.0, 1000.0], dtype=dtype)
    for node in (sigmoid.Sigmoid(), softmax.Softmax(), gelu.Gelu(), gelu.Gelu("none"), tanh.Tanh(), erf.Erf()):
        assert node.forward(x).isfinite().all()
        assert node.backward(torch.ones_like(x), x)[0].isfinite().all()


def test_softmax_gradient_sums_to_zero() -> None:
    node = softmax.Softmax(1)
    x = Init.seeded(0, dtype=torch.float64).normal(3, 5, 2)
    node.forward(x)
    (dx,) = node.backward(Init.seeded(1, dtype=torch.float64).normal(3, 5, 2), x)
    torch.testing.assert_close(dx.sum(1), torch.zeros(3, 2, dtype=torch.float64), rtol=0, atol=1e-14)


def test_relu_is_flat_at_zero_and_finite_for_a_stale_input() -> None:
    node = relu.ReLU()
    x = torch.tensor([0.0, -0.0, float("nan"), 1.0])
    assert node.backward(torch.ones(4), x)[0].tolist() == [0.0, 0.0, 0.0, 1.0]
