"""State-space layers: the scan against a loop, causality, what is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.harness import relative_error
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.ssm import bc_norm, complex_ssm_state, mamba_block, mimo_mamba_block
from cachelint.runtime.layers.ssm.bc_norm import BCNorm
from cachelint.runtime.layers.ssm.complex_ssm_state import ComplexSSMState
from cachelint.runtime.layers.ssm.mamba_block import MambaBlock
from cachelint.runtime.layers.ssm.mimo_mamba_block import MIMOMambaBlock
from cachelint.runtime.layers.ssm.selective_scan import (
    Selection,
    causal_conv,
    linear_scan,
    read_states,
    scan_by_steps,
    scan_states,
)
from tests.runtime.layers.conformance import matches

few = settings(max_examples=15, deadline=None)
seeds = st.integers(0, 10_000)
rules = st.sampled_from(["euler", "trapezoid"])


@few
@given(batch=st.integers(1, 3), length=st.integers(1, 17), rule=rules, seed=seeds)
def test_the_scan_without_a_loop_is_the_loop(batch: int, length: int, rule: Any, seed: int) -> None:
    init = Init.seeded(seed, dtype=torch.float64)
    dt, x = init.uniform(batch, length, 3, low=0.1, high=2.0), init.normal(batch, length, 3)
    a, b, c = -init.uniform(3, 4, low=0.1, high=2.0), init.normal(batch, length, 4), init.normal(batch, length, 4)
    selection = Selection(x, dt, a, b, c, init.normal(3))
    got = read_states(selection, scan_states(selection, rule))
    assert relative_error(got, scan_by_steps(selection, rule)) < 1e-13


@few
@given(
    kind=st.sampled_from([MambaBlock, MIMOMambaBlock, ComplexSSMState]),
    batch=st.integers(1, 2),
    length=st.integers(1, 6),
    taps=st.integers(1, 4),
    rank=st.integers(1, 3),
    rule=rules,
    keep=st.booleans(),
    seed=seeds,
)
def test_blocks_on_any_shape(
    kind: Any, batch: int, length: int, taps: int, rank: int, rule: Any, keep: bool, seed: int
) -> None:
    module: Any = {MambaBlock: mamba_block, MIMOMambaBlock: mimo_mamba_block, ComplexSSMState: complex_ssm_state}[kind]

    def make(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        init = Init.seeded(seed, dtype=torch.float64)
        node = kind(2, inner=8, states=4, rank=rank, taps=taps, rule=rule, keep_states=keep, init=init)
        init.jitter(node)
        return node, (init.normal(batch, length, 2),)

    matches(make, module.reference, seed)


@few
@given(lead=st.lists(st.integers(1, 4), max_size=3), width=st.integers(1, 7), seed=seeds)
def test_bc_norm_on_any_shape(lead: list[int], width: int, seed: int) -> None:
    def make(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        init = Init.seeded(seed, dtype=torch.float64)
        node = BCNorm(width, eps=1e-2, init=init)
        init.jitter(node)
        return node, (init.normal(*lead, width),)

    matches(make, bc_norm.reference, seed)


def test_a_long_scan_stays_finite_and_settles() -> None:
    states = linear_scan(torch.full((1, 5000, 1), 1e-3), torch.ones(1, 5000, 1))
    assert states.isfinite().all()
    assert torch.allclose(states[0, -1], torch.tensor([1 / (1 - 1e-3)]))


def test_the_convolution_sees_no_later_step() -> None:
    x, weight = torch.randn(1, 6, 2), torch.randn(2, 3)
    changed = torch.cat((x[:, :4], x[:, 4:] + 1.0), 1)
    assert torch.equal(causal_conv(x, weight)[:, :4], causal_conv(changed, weight)[:, :4])
    assert not torch.equal(causal_conv(x, weight)[:, 4:], causal_conv(changed, weight)[:, 4:])


@pytest.mark.parametrize("kind", [MambaBlock, MIMOMambaBlock, ComplexSSMState])
def test_a_block_sees_no_later_step(kind: Callable[..., MambaBlock]) -> None:
    node, x = kind(4, states=2), torch.randn(1, 6, 4)
    changed = torch.cat((x[:, :3], x[:, 3:] + 1.0), 1)
    assert torch.allclose(node.forward(x)[:, :3], node.forward(changed)[:, :3], atol=1e-6)


def test_scanning_again_keeps_no_states_and_gives_the_same() -> None:
    x, grad = torch.randn(2, 9, 4), torch.randn(2, 9, 4)
    keeping, again = MambaBlock(4, init=Init.seeded(0)), MambaBlock(4, keep_states=False, init=Init.seeded(0))
    assert torch.equal(keeping.forward(x), again.forward(x))
    assert keeping.states is not None
    assert again.states is None
    assert torch.equal(keeping.backward(grad, x)[0], again.backward(grad, x)[0])


def test_the_state_matrix_gradient_has_one_factor_of_a() -> None:
    """dA_log is dA * dt * A * h_before * dh: with A = -2 a second factor of A would double it."""
    init = Init.seeded(0, dtype=torch.float64)
    node = MambaBlock(2, inner=3, states=1, rank=1, init=init)
    node.a_log.value.fill_(torch.log(torch.tensor(2.0)))

    def make(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        node.zero_grad()
        return node, (Init.seeded(seed, dtype=torch.float64).normal(1, 4, 2),)

    matches(make, mamba_block.reference)


def test_channels_that_do_not_split_into_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="groups"):
        MambaBlock(2, inner=3, groups=2)


def test_an_odd_number_of_states_cannot_rotate() -> None:
    with pytest.raises(ValueError, match="even"):
        ComplexSSMState(2, states=3)
