"""Router and mixture of experts: choices, ties, shapes, what the experts get."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.harness import relative_error
from cachelint.runtime.layers.core import mixture_of_experts, moe_gate
from cachelint.runtime.layers.core.ffn import FFN
from cachelint.runtime.layers.core.linear import Linear
from cachelint.runtime.layers.core.mixture_of_experts import MixtureOfExperts
from cachelint.runtime.layers.core.moe_gate import MoEGate
from cachelint.runtime.layers.init import Init
from tests.runtime.layers.conformance import matches

few = settings(max_examples=15, deadline=None)
shapes = st.lists(st.integers(1, 4), max_size=2).map(tuple)
seeds = st.integers(0, 10_000)


@few
@given(
    lead=shapes,
    experts=st.integers(1, 5),
    data=st.data(),
    scoring=st.sampled_from(["softmax", "sigmoid"]),
    normalise=st.booleans(),
    shared=st.booleans(),
    seed=seeds,
)
def test_gate_and_mixture_on_any_shape(
    lead: tuple[int, ...], experts: int, data: Any, scoring: Any, normalise: bool, shared: bool, seed: int
) -> None:
    top_k = data.draw(st.integers(1, experts))

    def gate(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        init = Init.seeded(seed, dtype=torch.float64)
        return MoEGate(top_k, scoring=scoring, normalise=normalise), (init.normal(*lead, 3), init.normal(experts, 3))

    def mixture(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        router, inputs = gate(seed)
        assert isinstance(router, MoEGate)
        init = Init.seeded(seed + 1, dtype=torch.float64)
        modules = [FFN(3, 2, 3, init=init) for _ in range(experts)]
        return MixtureOfExperts(router, modules, FFN(3, 2, 3, init=init) if shared else None), inputs

    matches(gate, moe_gate.reference, seed)
    matches(mixture, mixture_of_experts.reference, seed)


def test_equal_scores_go_to_the_lower_number() -> None:
    routing = MoEGate(2).route(torch.ones(3, 2), torch.ones(4, 2))
    assert routing.indices.tolist() == [[0, 1]] * 3


def test_the_bias_moves_the_choice_and_not_the_weights() -> None:
    hidden, gate_weight = torch.eye(3), torch.eye(3) * 4
    plain, biased = MoEGate(1, normalise=False), MoEGate(1, normalise=False, routing_bias=torch.tensor([0.0, 0.0, 5.0]))
    assert plain.route(hidden, gate_weight).indices.flatten().tolist() == [0, 1, 2]
    routing = biased.route(hidden, gate_weight)
    assert routing.indices.flatten().tolist() == [2, 2, 2]
    assert torch.equal(routing.weights.flatten(), torch.softmax(hidden @ gate_weight.mT, -1)[:, 2])


def test_an_expert_gets_the_gradient_times_its_weight() -> None:
    init = Init.seeded(0, dtype=torch.float64)
    expert = Linear(2, 2, init=init)
    node = MixtureOfExperts(MoEGate(1, normalise=False), [expert])
    hidden, gate_weight, grad = init.normal(3, 2), init.normal(1, 2), init.normal(3, 2)
    node.gate.scale = 0.25  # a single expert has the softmax one
    node.forward(hidden, gate_weight)
    node.backward(grad, hidden, gate_weight)
    assert relative_error(expert.weight.grad, 0.25 * hidden.mT @ grad) < 1e-14


def test_experts_may_have_another_width() -> None:
    init = Init.seeded(0, dtype=torch.float64)
    node = MixtureOfExperts(MoEGate(2), [Linear(3, 5, init=init) for _ in range(4)])
    hidden, gate_weight = init.normal(2, 6, 3), init.normal(4, 3)
    y = node.forward(hidden, gate_weight)
    assert y.shape == (2, 6, 5)
    dhidden, dgate_weight = node.backward(torch.ones_like(y), hidden, gate_weight)
    assert (dhidden.shape, dgate_weight.shape) == (hidden.shape, gate_weight.shape)


def test_a_gate_weight_without_one_row_an_expert_is_refused() -> None:
    node = MixtureOfExperts(MoEGate(1), [Linear(2, 2), Linear(2, 2)])
    with pytest.raises(ValueError, match="experts"):
        node.forward(torch.rand(3, 2), torch.rand(3, 2))
