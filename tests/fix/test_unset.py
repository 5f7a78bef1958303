"""A fix that takes the writes of a field away and leaves a read of it behind is not carried out."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import pytest

from cachelint.checks import FileContext
from cachelint.fix import apply
from cachelint.fix.edits import Plan, Rewrite, Text
from cachelint.fix.unset import left_unset
from cachelint.index.project import Project
from cachelint.model import Applicability, Finding
from cachelint.settings import Settings
from tests.fix.differential import fixed, source_of

FUNCTION = """\
import torch


{around}
class Fn(torch.autograd.Function{bases}):
    @staticmethod
    def forward(ctx, x, w):
        {write}
        ctx.count = 3
        return x @ w

    @staticmethod
    def backward(ctx, g):
        {read}

    {method}
{behind}
"""
LAYER = """\
class Layer:
    def __init__(self):
        self.kept = None

    def forward(self, x):
        self.kept = x @ x
        return self.kept

    def backward(self, grad):
        return grad @ self.kept
"""


def careless(file: FileContext, findings: Sequence[Finding]) -> list[Plan]:
    """A remedy that drops every statement of forward that sets ``kept``, and nothing else."""
    text = Text(file.module.text)
    drops: list[Rewrite] = []
    for node in ast.walk(ast.parse(text.text)):
        if isinstance(node, ast.FunctionDef) and node.name in ("forward", "_keep"):
            drops += [
                Rewrite(text.span(statement))
                for statement in ast.walk(node)
                if isinstance(statement, (ast.Assign, ast.Expr)) and "kept" in ast.unparse(statement)
            ]
    return [Plan(tuple(findings), tuple(drops), Applicability.SAFE, "drop it")]


def text_of(**parts: str) -> str:
    defaults = {"around": "", "bases": "", "write": "ctx.kept = x @ w", "method": "", "behind": ""}
    return FUNCTION.format(**{**defaults, "read": "return g @ ctx.kept, None", **parts})


READ_BY_A_HELPER = "def read(c, g):\n    return g @ c.kept\n\n"


@pytest.mark.parametrize(
    "text",
    [
        text_of(),
        text_of(write='setattr(ctx, "kept", x @ w)'),
        text_of(read='return g @ getattr(ctx, "kept"), None'),
        text_of(around=READ_BY_A_HELPER, read="return read(ctx, g), None"),
        text_of(read="return Fn.half(ctx, g), None", method="@staticmethod\n    def half(c, g): return g @ c.kept"),
        text_of(read="return [g @ ctx.kept for _ in range(1)][0], None"),
        text_of(
            behind="class More(Fn):\n    @staticmethod\n    def backward(ctx, g):\n        return g @ ctx.kept, None"
        ),
        LAYER,
    ],
    ids=[
        "plain",
        "setattr",
        "getattr",
        "in a helper",
        "in a method",
        "in a comprehension",
        "in a subclass",
        "layer",
    ],
)
def test_a_read_that_is_left_behind_stops_the_fix(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "plan_file", careless)
    outcome = fixed(text, codes="CL")
    assert outcome.text == text
    assert outcome.applied == ()
    assert {refusal.kind for refusal in outcome.refused} == {"not clean after the fix"}
    assert all("would still read `kept` (line " in refusal.reason for refusal in outcome.refused)


@pytest.mark.parametrize(
    "parts",
    [
        {"read": "return g, None"},
        {"read": "return g * g.kept, None"},
        {"read": "return g * shown(g, ctx), None", "around": "def shown(g, c):\n    return g.kept\n\n"},
        {"read": "return g, None", "behind": "class Other:\n    def show(self):\n        return self.kept"},
        {"read": "ctx.kept = g\n        return ctx.kept, None"},
    ],
    ids=[
        "nobody",
        "of another object",
        "of another object in a helper",
        "of another class",
        "set by backward itself",
    ],
)
def test_the_same_name_elsewhere_does_not(parts: dict[str, str]) -> None:
    assert told(text_of(**parts), text_of(write="pass", **parts)) == ""


INHERITED = """\
import torch


class Base(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.kept = x @ x
        return ctx.kept * 2


class Fn(Base):
    @staticmethod
    def backward(ctx, g):
        ctx.kept = ctx.kept.t()
        g = g @ ctx.kept
        ctx.kept = None
        return g
"""


def test_what_a_base_sets_is_set() -> None:
    assert told(INHERITED, INHERITED.replace("        ctx.kept = ctx.kept.t()\n", "")) == ""
    gone = INHERITED.replace("ctx.kept = x @ x\n", "kept = x @ x\n").replace("return ctx.kept", "return kept")
    assert "`kept`" in told(INHERITED, gone)


def told(before: str, after: str) -> str:
    source = source_of(before)
    project = Project("/", [source.abspath], lambda path: before if path == source.abspath else None)
    settings = Settings(select=("ALL",))
    looks = [apply.look(source, text, project, settings) for text in (before, after)]
    return left_unset(looks[0].file, looks[1].file)
