"""Generated layers, before and after their fix: the same numbers to the bit, clean under reset and poison, and done."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from cachelint.runtime import Node
from cachelint.runtime.harness import Example, plain, two_steps, under_reset, worst
from tests.fix.differential import fixed, module_of
from tests.fix.layer_programs import layers
from tests.fix.test_legacy_migration import same


def example_of(text: str, flag: bool) -> Example:
    module = module_of(text)

    def make(seed: int) -> tuple[Node, tuple[torch.Tensor, ...]]:
        generator = torch.Generator().manual_seed(seed)
        return module.Layer(flag), (torch.randn(3, 3, generator=generator, dtype=torch.float64),)

    return make


def check(text: str) -> None:
    outcome = fixed(text, codes="CL")
    assert [r.kind for r in outcome.refused if r.kind in ("internal error", "not clean after the fix")] == [], (
        outcome.refused
    )
    again = fixed(outcome.text, codes="CL")
    assert again.text == outcome.text
    left = [r for r in outcome.refused if r.finding.code.startswith("CL1")]
    for flag in (True, False):
        old, new = example_of(text, flag), example_of(outcome.text, flag)
        try:
            plain(old)
        except (TypeError, AttributeError, RuntimeError, LookupError):
            continue  # the layer as it was is wrong on this path: a field is unset there
        for training in (True, False):
            assert same(plain(old, training=training), plain(new, training=training))
        before, after = two_steps(old), two_steps(new)
        assert same(before.first, after.first)
        assert same(before.second, after.second)
        if left or outcome.skipped:
            continue
        for in_arena in (False, True):
            trial = under_reset(new, steps=2, inputs_in_arena=in_arena)
            assert trial.error is None, trial.error
            assert worst(trial.outcome, two_steps(new).second) == 0
            assert trial.pins_left == 0


@settings(max_examples=60)
@given(layers())
def test_a_fixed_layer_is_the_same_and_clean(text: str) -> None:
    check(text)


@pytest.mark.nightly
@settings(max_examples=2000)
@given(layers())
def test_many_fixed_layers_are_the_same_and_clean(text: str) -> None:
    check(text)
