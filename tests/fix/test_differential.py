"""Generated programs mean the same after the fix, differentiate right where they did not, and survive poison."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fix import programs, scenes
from tests.fix.differential import compare, fixed, module_of, poison_clean
from tests.fix.programs import Chooser, Program, T

MAKERS: dict[str, Callable[[Chooser], Program]] = {"programs": programs.make, "scenes": scenes.make}
FOUND = sorted((Path(__file__).parent.parent / "data" / "found").glob("*.py"))


class Drawn:
    """Choices that hypothesis makes, and shrinks."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def pick(self, options: Sequence[T]) -> T:
        return self.data.draw(st.sampled_from(options))

    def flip(self, chance: float = 0.5) -> bool:
        return self.data.draw(st.floats(0, 1, exclude_max=True)) < chance


class Seeded:
    """Choices by a number."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, options: Sequence[T]) -> T:
        return self.random.choice(options)

    def flip(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance


def check(program: Program, *, poison: bool) -> None:
    outcome = fixed(program.text)
    assert not compare(program, outcome.text), program.text + "\n----\n" + outcome.text
    bad = [r for r in outcome.refused if r.kind in ("internal error", "not clean after the fix")]
    assert not bad, f"{program.text}\n{bad}"
    again = fixed(outcome.text)
    assert again.text == outcome.text
    if poison and not outcome.refused and not outcome.skipped:
        assert not poison_clean(outcome.text), outcome.text


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("part", range(6))
def test_three_hundred_programs(make: Callable[[Chooser], Program], part: int) -> None:
    for seed in range(50 * part, 50 * (part + 1)):
        check(make(Seeded(seed)), poison=seed % 10 == 0)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_programs_that_hypothesis_draws(make: Callable[[Chooser], Program], data: st.DataObject) -> None:
    check(make(Drawn(data)), poison=False)


@pytest.mark.nightly
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_five_thousand_programs(make: Callable[[Chooser], Program]) -> None:
    for seed in range(1_000, 6_000):
        check(make(Seeded(seed)), poison=True)


@pytest.mark.parametrize(("make", "share"), [(programs.make, 0.05), (scenes.make, 0.35)], ids=MAKERS)
def test_most_habits_are_fixed(make: Callable[[Chooser], Program], share: float) -> None:
    """A remedy that refuses everything would pass the tests above.

    A third of the scenes' fields are there to be refused: containers in containers, code that ctx is handed to unseen.
    """
    applied = refused = 0
    told = ""
    for seed in range(40):
        outcome = fixed(make(Seeded(seed)).text)
        applied += sum(len(plan.findings) for plan in outcome.applied)
        refused += len(outcome.refused) + len(outcome.skipped)
        told += "".join(plan.description.lower() for plan in outcome.applied)
    assert applied > 80
    assert refused <= share * applied
    assert "save_for_backward" in told
    assert "recompute" in told


PRODUCT = """\
import torch

COEF = [1.0]


class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b, n, flag):
        ctx.save_for_backward(x, w)
        ctx.place = x.data_ptr()
        y = COEF[0] * (x * w)
        return y

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = COEF[0] * g * w
        return gx, COEF[0] * g * x, None, None, None
"""
REFERENCE = "COEF = [1.0]\ndef reference(x, w, b, n, flag):\n    return COEF[0] * (x * w)\n"
FAULTS = {
    "the output differs": ("return y", "return y * (1 + 1e-15)"),
    "the gradient differs (": ("return gx,", "return gx * (1 + 1e-15),"),
    "the gradient differs under saved-tensor hooks": (
        "return gx,",
        "return gx if x.data_ptr() == ctx.place else 2 * gx,",
    ),
    "the second derivative was right and is wrong": (
        "x, w = ctx.saved_tensors",
        "x, w = map(torch.detach, ctx.saved_tensors)",
    ),
    "the generator is wrong": (),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_sees_what_it_is_there_for(fault: str) -> None:
    """A comparison that can't fail would prove nothing."""
    term = next(term for term in programs.TERMS if term.name == "product").numbered(0)
    program = Program(PRODUCT, (term,), True, REFERENCE, False)
    assert compare(program, PRODUCT) == ""
    if FAULTS[fault]:
        old, new = FAULTS[fault]
        assert PRODUCT.count(old) == 1
        assert compare(program, PRODUCT.replace(old, new)).startswith(fault)
    else:
        program.reference = REFERENCE.replace("x * w", "x * w * w")
        assert compare(program, PRODUCT).startswith(fault)


def test_poison_sees_what_is_not_saved() -> None:
    kept = PRODUCT.replace("ctx.save_for_backward(x, w)", "ctx.x, ctx.w = x * 1.0, w").replace(
        "x, w = ctx.saved_tensors", "x, w = ctx.x, ctx.w"
    )
    assert "ctx.x" in poison_clean(kept)
    assert poison_clean(PRODUCT) == ""


@pytest.mark.parametrize("path", FOUND, ids=lambda p: p.stem)
def test_what_went_wrong_once_stays_right(path: Path) -> None:
    """Each file has ``Fn`` and a ``check(Fn)`` that raises when the fix breaks it."""
    text = path.read_text()
    outcome = fixed(text)
    assert outcome.text != text or text.startswith("# left alone")
    for version in (text, outcome.text):
        module = module_of(version)
        module.check(module.Fn)
