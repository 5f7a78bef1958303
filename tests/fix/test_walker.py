"""The libcst walker and the planner's reading see the same uses of every receiver."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider

from cachelint.engine import examine
from cachelint.fix.edits import Text
from cachelint.fix.functions.scope import Routine, scope_of
from cachelint.fix.walker import Names, Place, uses
from cachelint.index.module import ModuleInfo
from cachelint.index.project import Project
from cachelint.settings import Settings
from tests.fix import programs
from tests.fix.test_differential import Seeded

ROOT = Path(__file__).parent.parent.parent
FILES = sorted((ROOT / "fixtures" / "cases").glob("*.py")) + sorted((ROOT / "tests" / "data").rglob("*.py"))


def read_twice(text: str, path: str) -> int:
    """Compare both readings of every function of every type; how many uses there were."""
    project = Project(os.path.dirname(path), [path], lambda p: text if p == path else None)
    module = ModuleInfo(path, text, "m")
    project.add(module)
    file, _ = examine(module, "m.py", project, Settings())
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    positions = wrapper.resolve(PositionProvider)
    functions = {}
    for node, place in positions.items():
        if isinstance(node, cst.FunctionDef):
            functions[place.start.line] = node
    lines = Text(text)
    count = 0
    for context in file.types:
        if context.report.dialect not in ("torch-function", "torch-library", "paddle"):
            continue
        known: dict[int, Routine] = {}
        scope = scope_of(context, known)
        spec = context.analysis.unit.dialect
        for routine in scope.routines.values():
            names = Names(
                routine.receiver,
                frozenset(spec.api),
                frozenset(spec.save),
                frozenset(spec.read_back),
                spec.name == "paddle",
            )
            planned = sorted(
                Place(use.kind, use.field, use.node.lineno, lines.column(use.node.lineno, use.node.col_offset))
                for use in routine.uses
            )
            seen = [place for place in uses(functions[routine.node.lineno], names, positions) if place.kind != "handed"]
            handed = [p for p in uses(functions[routine.node.lineno], names, positions) if p.kind == "handed"]
            followed = {(p.line, p.column) for p in handed}
            planned = [p for p in planned if not (p.kind == "escape" and (p.line, p.column) in followed)]
            assert sorted(seen) == planned, (path, routine.name)
            count += len(planned)
    return count


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_both_readings_agree_on_fixtures(path: Path) -> None:
    read_twice(path.read_text(), str(path))


def test_both_readings_agree_on_generated_programs() -> None:
    total = sum(read_twice(programs.make(Seeded(seed)).text, os.path.abspath("program.py")) for seed in range(60))
    assert total > 500


def test_targets_of_every_form() -> None:
    text = (
        "def forward(ctx, x):\n"
        "    ctx.a, (ctx.b, *ctx.c) = x\n"
        "    ctx.d: int = 1\n"
        "    ctx.e += 1\n"
        "    for ctx.f in x: pass\n"
        "    with x as ctx.g: pass\n"
        "    del ctx.h\n"
        "    ctx.i[0] = ctx.j.k\n"
        "    [ctx.l for y in ctx.m]\n"
        "    setattr(ctx, 'n', getattr(ctx, 'o'))\n"
        "    hasattr(ctx, 'p')\n"
        "    lambda ctx: ctx.q\n"
        "    f(ctx, key=ctx)\n"
        "    ctx is not None\n"
        "    other = ctx\n"
    )
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    function = wrapper.module.body[0]
    assert isinstance(function, cst.FunctionDef)
    found = [(p.kind, p.field) for p in uses(function, Names("ctx"), wrapper.resolve(PositionProvider))]
    assert found == [
        ("store", "a"),
        ("store", "b"),
        ("store", "c"),
        ("store", "d"),
        ("load", "e"),
        ("store", "e"),
        ("store", "f"),
        ("store", "g"),
        ("delete", "h"),
        ("load", "i"),
        ("load", "j"),
        ("load", "l"),
        ("load", "m"),
        ("store", "n"),
        ("load", "o"),
        ("test", "p"),
        ("handed", "*"),
        ("handed", "*"),
        ("escape", "*"),
    ]
    ast.parse(text)
