"""Lifetimes: ``del`` after the last use of a group of names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from cachelint.checks import FileContext, TypeContext
from cachelint.checks.lifetimes import Owners, owners
from cachelint.fix.edits import After, Outcome, Plan, Refusal, Text
from cachelint.index.module import FunctionNode
from cachelint.index.walk import walk
from cachelint.model import Applicability, Finding

CODES = frozenset(("CL301", "CL302"))


def plan(file: FileContext, findings: Sequence[Finding]) -> Iterator[Outcome]:
    """One plan a place: names that are used for the last time by one statement go together."""
    text = Text(file.module.text)
    for context in file.types:
        mine = [f for f in findings if f.type == context.report.type]
        if not mine:
            continue
        by_place: dict[ast.stmt, tuple[list[str], list[Finding]]] = {}
        for group in owners(context):
            place = group.join if group.join is not None else group.first.statement
            for finding in mine:
                if finding.names == group.names and finding.line == place.lineno:
                    names, found = by_place.setdefault(group.last, ([], []))
                    names += [name for name in group.names if name not in names]
                    found += [finding] if finding not in found else []
        for last, (names, found) in by_place.items():
            yield from _at(context, text, last, names, found)


def _at(
    context: TypeContext, text: Text, last: ast.stmt, names: Sequence[str], findings: Sequence[Finding]
) -> Iterator[Outcome]:
    scope = _function(context, last)
    problem = "its function was not found" if scope is None else _problem(scope, last, names)
    if problem:
        for finding in findings:
            yield Refusal(finding, problem, "names are needed")
        return
    listed = ", ".join(names)
    yield Plan(
        tuple(findings),
        (After(text.span(last), (f"del {listed}",)),),
        Applicability.SAFE,
        f"`del {listed}` after the last use",
    )


def _function(context: TypeContext, statement: ast.stmt) -> FunctionNode | None:
    unit = context.analysis.unit
    for method in (*unit.forward, *unit.setup):
        if any(node is statement for node in walk(method.node)):
            return method.node
    return None


def _problem(scope: FunctionNode, last: ast.stmt, names: Sequence[str]) -> str:
    for node in walk(scope):
        if isinstance(node, (ast.Global, ast.Nonlocal)) and set(node.names) & set(names):
            return f"a name is shared with another scope (line {node.lineno})"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("locals", "vars", "eval", "exec")
        ):
            return f"`{node.func.id}` may read the names (line {node.lineno})"
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del) and node.id in names:
            return f"`{node.id}` is deleted already on some path (line {node.lineno})"
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and node is not scope:
            if any(isinstance(n, ast.Name) and n.id in names for n in walk(node)):
                return f"a nested function uses the names (line {node.lineno})"
    current = next(
        (loop for loop in walk(scope) if isinstance(loop, (ast.For, ast.While)) and last in walk(loop)), None
    )
    if current is not None:
        return f"the last use is in a loop (line {current.lineno})"
    return ""


_ = Owners
