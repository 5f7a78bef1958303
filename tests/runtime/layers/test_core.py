"""Linear maps and modules made of them: shapes, options, and what backward is handed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cachelint.runtime import Arena, Builder
from cachelint.runtime.harness import by_autograd, plain, worst
from cachelint.runtime.layers.activations.gelu import Gelu
from cachelint.runtime.layers.activations.relu import ReLU
from cachelint.runtime.layers.activations.sigmoid import Sigmoid
from cachelint.runtime.layers.activations.softmax import Softmax
from cachelint.runtime.layers.core import (
    add,
    conv1d,
    dense,
    ffn,
    film,
    gemm,
    linear,
    mat_mul,
    polynomial_expansion,
    temporal_conv_encoder,
    variable_selection,
)
from cachelint.runtime.layers.core.add import Add
from cachelint.runtime.layers.core.bias import Bias
from cachelint.runtime.layers.core.bias import reference as bias_reference
from cachelint.runtime.layers.core.conv1d import Conv1D
from cachelint.runtime.layers.core.dense import Dense
from cachelint.runtime.layers.core.ffn import FFN
from cachelint.runtime.layers.core.film import FiLM
from cachelint.runtime.layers.core.gemm import Gemm
from cachelint.runtime.layers.core.linear import Linear
from cachelint.runtime.layers.core.mat_mul import MatMul
from cachelint.runtime.layers.core.polynomial_expansion import PolynomialExpansion
from cachelint.runtime.layers.core.rotary_embedding import RotaryEmbedding
from cachelint.runtime.layers.core.temporal_conv_encoder import TemporalConvEncoder
from cachelint.runtime.layers.core.variable_selection import VariableSelection
from cachelint.runtime.layers.init import Init
from fixtures.legacy.activations.gelu import Gelu as LegacyGelu
from fixtures.legacy.activations.sigmoid import Sigmoid as LegacySigmoid
from fixtures.legacy.core.dense import Dense as LegacyDense
from tests.runtime.layers.conformance import matches

leads = st.lists(st.integers(1, 4), max_size=3).map(tuple)
sizes = st.integers(1, 5)
seeds = st.integers(0, 10_000)
few = settings(max_examples=20, deadline=None)


def made(build, *shapes):
    """An example: ``build(init)`` with jittered parameters, and inputs of these shapes."""

    def make(seed: int):
        init = Init.seeded(seed, dtype=torch.float64)
        node = build(init)
        init.jitter(node)
        return node, tuple(init.normal(*shape) for shape in shapes)

    return make


@few
@given(lead=leads, n=sizes, m=sizes, h=sizes, seed=seeds)
def test_maps_of_the_last_axis_on_any_shape(lead, n: int, m: int, h: int, seed: int) -> None:
    matches(made(lambda init: Linear(n, m, init=init), (*lead, n)), linear.reference, seed)
    matches(made(lambda init: Bias(n, init=init), (*lead, n)), bias_reference, seed)
    matches(made(lambda init: Dense(n, m, activation=Gelu("none"), init=init), (*lead, n)), dense.reference, seed)
    matches(made(lambda init: FFN(n, h, m, bias=True, init=init), (*lead, n)), ffn.reference, seed)
    matches(made(lambda init: FFN(n, h, m, gate="geglu", init=init), (*lead, n)), ffn.reference, seed)
    matches(made(lambda init: FiLM(n, m, init=init), (*lead, m), (*lead, n)), film.reference, seed)
    matches(
        made(lambda init: VariableSelection(n + 1, h, init=init), (*lead, n + 1)), variable_selection.reference, seed
    )


@few
@given(shape=leads, ones=st.lists(st.booleans(), min_size=3, max_size=3), drop=st.integers(0, 3), seed=seeds)
def test_add_of_broadcast_shapes(shape, ones, drop: int, seed: int) -> None:
    other = tuple(1 if flag else size for size, flag in zip(shape, ones, strict=False))[min(drop, len(shape)) :]
    matches(made(lambda init: Add(), shape, other), add.reference, seed)
    matches(made(lambda init: Add(), other, shape), add.reference, seed)


@few
@given(lead=leads, ones=st.lists(st.booleans(), min_size=3, max_size=3), mkn=st.tuples(sizes, sizes, sizes), seed=seeds)
def test_mat_mul_of_broadcast_shapes(lead, ones, mkn, seed: int) -> None:
    m, k, n = mkn
    other = tuple(1 if flag else size for size, flag in zip(lead, ones, strict=False))
    matches(made(lambda init: MatMul(), (*lead, m, k), (*other, k, n)), mat_mul.reference, seed)
    matches(made(lambda init: MatMul(transpose_b=True), (*other, m, k), (*lead, n, k)), mat_mul.reference, seed)


def test_mat_mul_refuses_vectors() -> None:
    with pytest.raises(ValueError, match=r"\(3,\)"):
        MatMul().forward(torch.ones(2, 3), torch.ones(3))


@few
@given(
    mkn=st.tuples(sizes, sizes, sizes), flags=st.tuples(st.booleans(), st.booleans()), c=st.integers(0, 4), seed=seeds
)
def test_gemm_with_every_orientation_and_c(mkn, flags, c: int, seed: int) -> None:
    m, k, n = mkn
    a = (k, m) if flags[0] else (m, k)
    b = (n, k) if flags[1] else (k, n)
    cs = [(), (n,), (m, 1), (1, n), (m, n)]
    build = lambda init: Gemm(alpha=0.7, beta=-1.5, transpose_a=flags[0], transpose_b=flags[1])  # noqa: E731
    matches(made(build, a, b, cs[c]), gemm.reference, seed)


@few
@given(
    channels=st.tuples(sizes, sizes),
    kernel=st.integers(1, 4),
    options=st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(1, 2), st.booleans()),
    more=st.integers(0, 5),
    seed=seeds,
)
def test_conv1d_with_every_option(channels, kernel: int, options, more: int, seed: int) -> None:
    stride, padding, dilation, with_bias = options
    length = max(1, dilation * (kernel - 1) + 1 - 2 * padding) + more

    def build(init: Init) -> Conv1D:
        return Conv1D(*channels, kernel, stride=stride, padding=padding, dilation=dilation, bias=with_bias, init=init)

    matches(made(build, (2, channels[0], length)), conv1d.reference, seed)


@few
@given(widths=st.tuples(sizes, sizes), kernel=st.sampled_from([1, 3, 5]), bias=st.booleans(), length=sizes, seed=seeds)
def test_temporal_conv_encoder_on_any_shape(widths, kernel: int, bias: bool, length: int, seed: int) -> None:
    build = lambda init: TemporalConvEncoder(*widths, 3, kernel_size=kernel, bias=bias, init=init)  # noqa: E731
    matches(made(build, (2, widths[0], length)), temporal_conv_encoder.reference, seed)


def test_temporal_conv_encoder_refuses_an_even_kernel() -> None:
    with pytest.raises(ValueError, match="odd"):
        TemporalConvEncoder(2, 3, 4, kernel_size=2)


@few
@given(lead=leads, features=st.integers(1, 4), degree=st.integers(1, 4), constant=st.booleans(), seed=seeds)
def test_polynomials_of_any_degree(lead, features: int, degree: int, constant: bool, seed: int) -> None:
    node = PolynomialExpansion(features, degree, include_constant=constant)
    assert len(set(node.exponents)) == len(node.exponents)
    assert all(sum(powers) <= degree for powers in node.exponents)
    matches(
        lambda s: (node, (Init.seeded(s, dtype=torch.float64).normal(*lead, features),)),
        polynomial_expansion.reference,
        seed,
    )


def test_polynomials_have_a_gradient_at_zero() -> None:
    node = PolynomialExpansion(2, 2)
    assert node.exponents == ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
    x = torch.zeros(1, 2)
    assert node.forward(x).tolist() == [[1, 0, 0, 0, 0, 0]]
    assert node.backward(torch.arange(6.0)[None], x)[0].tolist() == [[1.0, 2.0]]


def test_the_activation_is_differentiated_where_it_was_applied() -> None:
    """As many outputs as inputs: handing x to the activation in place of the pre-activation would go unnoticed."""
    make = made(lambda init: Dense(4, 4, activation=Gelu(), init=init), (5, 4))
    node, (x,) = make(0)
    y = node.forward(x)
    right = node.backward(torch.ones_like(y), x)[0]
    (z_grad,) = Gelu().backward(torch.ones_like(y), x)
    wrong = node.linear.backward(z_grad, x)[0]
    assert (right - wrong).norm() / right.norm() > 1e-2
    matches(make, dense.reference)


@pytest.mark.parametrize("kinds", [(Sigmoid, LegacySigmoid), (Gelu, LegacyGelu)], ids=["sigmoid", "gelu"])
def test_the_legacy_form_hands_on_the_wrong_operand_and_its_cache_hides_it(kinds) -> None:
    ours, theirs = kinds
    node, (x,) = made(lambda init: Dense(4, 4, activation=ours(), init=init), (5, 4))(0)
    old, _ = made(lambda init: LegacyDense(4, 4, activation=theirs(), init=init), (5, 4))(0)
    torch.testing.assert_close(node.forward(x), old.forward(x), rtol=1e-12, atol=1e-12)
    grad = torch.ones(5, 4, dtype=torch.float64)
    torch.testing.assert_close(node.backward(grad, x), old.backward(grad, x), rtol=1e-12, atol=1e-12)


def test_dense_without_an_activation_drops_what_an_earlier_one_left() -> None:
    node, x = Dense(3, 3, activation=ReLU()), torch.ones(2, 3)
    node.forward(x)
    assert node.pre_activation is not None
    node.activation = None
    node.forward(x)
    assert node.pre_activation is None


def test_variable_selection_goes_through_the_derivative_of_gelu() -> None:
    make = made(lambda init: VariableSelection(3, 4, init=init), (6, 3))
    assert worst(plain(make), by_autograd(make, variable_selection.reference)) < 1e-12
    node, _ = make(0)
    assert {name for name, _ in node.named_parameters()} == {
        "hidden.linear.weight",
        "hidden.bias",
        "score.linear.weight",
        "score.bias",
    }


def test_rotary_embedding_is_built_for_the_features_that_it_meets() -> None:
    node = RotaryEmbedding(0.5)
    node.forward(torch.ones(2, 3, 8))
    first = node.inner
    assert first is not None
    assert first.rotary == 4
    node.forward(torch.ones(5, 8))
    assert node.inner is first
    node.forward(torch.ones(2, 3, 4))
    assert node.inner is not None
    assert node.inner.rotary == 2


def test_rotary_embedding_differentiates_before_any_forward() -> None:
    node, grad = RotaryEmbedding(offset=3), Init.seeded(0, dtype=torch.float64).normal(2, 3, 4)
    (dx,) = node.backward(grad, grad)
    torch.testing.assert_close(node.forward(dx), grad, rtol=1e-12, atol=1e-12)


def test_a_builder_wires_every_layer_below_a_composite() -> None:
    init = Init.seeded(0, dtype=torch.float64)
    arena = Arena(1 << 20, poison=True)
    builder = Builder(arena)
    x = builder.input("x")
    hidden = builder.add(FFN(4, 8, 4, bias=True, init=init), x)
    gated = builder.add(Dense(4, 4, activation=Softmax(), init=init), hidden)
    graph = builder.build(builder.add(VariableSelection(4, 5, init=init), gated))
    value = init.normal(3, 4)
    y = graph.forward(value).clone()
    arena.reset()
    (dx,) = graph.backward(torch.ones_like(y))

    again = Builder()
    x = again.input("x")
    nodes = [vertex.node for vertex in graph.plan.vertices]
    for node in nodes:
        x = again.add(node, x)
    plainly = again.build(x)
    for node in nodes:
        node.zero_grad()
    assert torch.equal(plainly.forward(value), y)
    assert torch.equal(plainly.backward(torch.ones_like(y))[0], dx)
    assert dx.isfinite().all()
    assert arena.stats().pins == 0
