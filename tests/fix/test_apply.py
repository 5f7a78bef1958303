"""Plans that meet, rounds, and what a fix may rely on."""

from __future__ import annotations

import dataclasses

import pytest

from cachelint.fix.apply import fix_text
from cachelint.fix.edits import Plan, Span, Text
from cachelint.fix.remedies import fixable_codes, remedies
from cachelint.fix.rewrite import CannotRewrite, rewrite
from cachelint.index.project import Project
from cachelint.settings import Settings
from tests.fix.differential import HERE, fixed, source_of
from tests.fix.test_pairs import DATA

SURE_AND_UNSURE = """\
from torch.autograd import Function

from elsewhere import gather


class Fn(Function):
    @staticmethod
    def forward(ctx, x, mask):
        ctx.mask = mask
        ctx.y = x @ x
        return ctx.y * 2

    @staticmethod
    def backward(ctx, g):
        return gather(g @ ctx.y, ctx.mask), None
"""


def test_what_may_not_be_a_tensor_is_told_apart_when_the_program_runs() -> None:
    outcome = fixed(SURE_AND_UNSURE)
    assert [sorted(f.field or "" for f in plan.findings) for plan in outcome.applied] == [["mask", "y"]]
    assert "mask, y = ctx.saved_tensors" in outcome.text
    assert "ctx.mask = None if isinstance(mask, torch.Tensor) else mask" in outcome.text
    assert outcome.text.count("save_for_backward") == 1
    assert outcome.skipped == ()


def test_plans_know_when_they_meet() -> None:
    one = Plan((), (), next(iter(fixed(SURE_AND_UNSURE).applied)).applicability, "", (Span(1, 0, 5, 0),))
    assert one.conflicts(dataclasses.replace(one, scope=(Span(4, 2, 6, 0),)))
    assert not one.conflicts(dataclasses.replace(one, scope=(Span(5, 0, 6, 0),)))


def test_a_reading_that_disagrees_stops_the_rewrite() -> None:
    """The walker counts the uses itself: a plan made for another text is not carried out."""
    text = (DATA / "fix" / "clash.py").read_text()
    plan = fixed(text).applied[0]
    changed = text.replace("return torch.matmul(g, ctx.torch.t())", "return torch.matmul(ctx.torch, ctx.torch.t())")
    assert len(changed.splitlines()) == len(text.splitlines())
    with pytest.raises(CannotRewrite, match="two readings"):
        rewrite(changed, plan.edits, plan.claims)


def test_only_what_is_wanted_is_fixed() -> None:
    project = Project("/", [HERE], lambda p: SURE_AND_UNSURE if p == HERE else None)
    outcome = fix_text(
        source_of(SURE_AND_UNSURE), project, Settings(select=("ALL",)), wanted=lambda f: f.field == "mask"
    )
    assert [f.field for plan in outcome.applied for f in plan.findings] == ["mask"]
    assert "ctx.y = x @ x" in outcome.text


def test_the_project_sees_the_fixed_text_afterwards() -> None:
    project = Project("/", [HERE], lambda p: SURE_AND_UNSURE if p == HERE else None)
    outcome = fix_text(source_of(SURE_AND_UNSURE), project, Settings(select=("ALL",)))
    module = project.module(HERE)
    assert module is not None
    assert module.text == outcome.text


def test_remedies_are_found_by_their_files() -> None:
    assert {f"CL10{n}" for n in range(1, 7)} <= fixable_codes()
    assert all(remedy.CODES for remedy in remedies())


def test_columns_are_characters() -> None:
    text = Text("é = '𝒳'; y = 1\r\nz = 2\rw = 3\n")
    assert text.lines == ["é = '𝒳'; y = 1\r\n", "z = 2\r", "w = 3\n"]
    assert text.column(1, len("é = '𝒳'; ".encode())) == len("é = '𝒳'; ")
    assert text.between(Span(1, 9, 2, 5)) == "y = 1\r\nz = 2"


THREE = """\\
import torch


class Pair:
    def __init__(self, one, two):
        self.one, self.two = one, two


class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, flag: bool):
        y = x.exp() @ x
        ctx.a = Pair(y, y @ x) if flag else y @ y
        ctx.b = Pair(y @ y, x) if flag else y.T @ y
        ctx.y = y
        return y * 2

    @staticmethod
    def backward(ctx, g):
        return use(g @ ctx.y, ctx.a, ctx.b), None
"""


def test_every_plan_has_its_turn_when_one_does_not_hold() -> None:
    outcome = fixed(THREE)
    assert [f.field for plan in outcome.applied for f in plan.findings] == ["y"]
    assert {(refusal.finding.field, refusal.kind) for refusal in outcome.refused} == {
        ("a", "not clean after the fix"),
        ("b", "not clean after the fix"),
    }
    assert fixed(outcome.text).text == outcome.text
