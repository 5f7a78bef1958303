"""The live input before the cache: the order is turned round where the cache has to stay."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from cachelint.checks import FileContext
from cachelint.fix.edits import Edit, Outcome, Plan, Refusal, Replace, Text
from cachelint.index.module import FunctionNode
from cachelint.index.walk import walk
from cachelint.model import Applicability, Finding

CODES = frozenset(("CL202",))


def plan(file: FileContext, findings: Sequence[Finding]) -> Iterator[Outcome]:
    """A plan a place."""
    text = Text(file.module.text)
    for context in file.types:
        for finding in findings:
            if finding.type == context.report.type:
                yield _at([m.node for m in context.analysis.unit.backward], text, finding)


def _at(methods: Sequence[FunctionNode], text: Text, finding: Finding) -> Outcome:
    for method in methods:
        for node in walk(method):
            if (
                isinstance(node, (ast.IfExp, ast.BoolOp, ast.If))
                and node.lineno == finding.line
                and node.col_offset + 1 == finding.column
            ):
                edit = _turned(node, finding.field or "", text)
                if edit is not None:
                    return Plan(
                        (finding,),
                        (edit,),
                        Applicability.SAFE,
                        f"take the live input first, `{finding.field}` only without it",
                        (text.span(method),),
                    )
    return Refusal(finding, "the choice between cache and input is not a plain one", "not understood")


def _turned(node: ast.IfExp | ast.BoolOp | ast.If, field: str, text: Text) -> Edit | None:
    if isinstance(node, ast.If):
        (statement,) = node.body if len(node.body) == 1 else (None,)
        if not isinstance(statement, ast.Assign) or not _is_field(statement.value, field):
            return None
        if not isinstance(statement.targets[0], ast.Name) or not _asks_field(node.test, field):
            return None
        return Replace(text.span(node.test), f"{statement.targets[0].id} is None")
    if isinstance(node, ast.BoolOp):
        first, last = node.values[0], node.values[-1]
        if len(node.values) != 2 or not _is_field(first, field) or not isinstance(last, ast.Name):
            return None
        return Replace(text.span(node), f"{last.id} if {last.id} is not None else {text.source(first)}")
    arms = [node.body, node.orelse]
    kept = next((arm for arm in arms if _is_field(arm, field)), None)
    live = next((arm for arm in arms if isinstance(arm, ast.Name)), None)
    if kept is None or not isinstance(live, ast.Name) or not _asks_field(node.test, field):
        return None
    return Replace(text.span(node), f"{live.id} if {live.id} is not None else {text.source(kept)}")


def _is_field(node: ast.expr, field: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == field and isinstance(node.value, ast.Name)


def _asks_field(test: ast.expr, field: str) -> bool:
    """``self.field is not None`` and its like, and nothing else."""
    if isinstance(test, ast.Compare):
        return len(test.ops) == 1 and _is_field(test.left, field)
    return _is_field(test, field)
