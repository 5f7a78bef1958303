"""A forward that backward runs for its caches alone goes, once there are no such caches."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from cachelint.checks import FileContext, TypeContext
from cachelint.fix.edits import Outcome, Plan, Refusal, Rewrite, Text
from cachelint.index.module import FunctionNode
from cachelint.model import Applicability, FieldReport, Finding, Origin

CODES = frozenset(("CL207",))


def plan(file: FileContext, findings: Sequence[Finding]) -> Iterator[Outcome]:
    """A plan a call."""
    text = Text(file.module.text)
    for context in file.types:
        for finding in findings:
            if finding.type == context.report.type:
                yield _at(context, text, finding)


def _at(context: TypeContext, text: Text, finding: Finding) -> Outcome:
    found = _statement(context, finding)
    if found is None:
        return Refusal(finding, "the call was not found", "not understood")
    method, statement, call = found
    if not all(isinstance(a, ast.Name) and a.id in _live(method) for a in call.args) or call.keywords:
        return Refusal(finding, "the forward is not given the live inputs as they are", "other inputs")
    fields = _seeded(context, call)
    if fields is None:
        return Refusal(finding, "what the child's forward keeps is not known", "unknown child")
    if any(field.origin is Origin.RANDOM for field in fields):
        return Refusal(
            finding, "it draws anew what backward reads: the values of the first draw have to be kept", "random"
        )
    edits = (Rewrite(text.span(statement)),)
    scope = (text.span(method),)
    if not fields:
        return Plan((finding,), edits, Applicability.SAFE, "drop the forward in backward, which seeds nothing", scope)
    names = ", ".join(f"`{field.field}`" for field in fields)
    return Plan(
        (finding,),
        edits,
        Applicability.UNSAFE,
        f"drop the forward in backward and read {names} as the last forward left it",
        scope,
        notes=(f"a second forward before backward leaves another call's {names}",),
    )


def _statement(context: TypeContext, finding: Finding) -> tuple[FunctionNode, ast.stmt, ast.Call] | None:
    for method in context.analysis.unit.backward:
        for node in ast.walk(method.node):
            if isinstance(node, (ast.Expr, ast.Assign)) and isinstance(node.value, ast.Call):
                if (node.value.lineno, node.value.col_offset + 1) == (finding.line, finding.column):
                    return method.node, node, node.value
    return None


def _live(node: FunctionNode) -> set[str]:
    return {a.arg for a in (*node.args.posonlyargs, *node.args.args)[2:]}


def _seeded(context: TypeContext, call: ast.Call) -> tuple[FieldReport, ...] | None:
    """The fields that the forward sets for backward; None where they are not known."""
    assert isinstance(call.func, ast.Attribute)
    target = call.func.value
    if isinstance(target, ast.Name):
        return tuple(field for field in context.report.fields if field.read)
    if not isinstance(target, ast.Attribute):
        return None
    for child in context.composites.children(context.analysis):
        if child.attribute == target.attr:
            judged = context.composites.judge(child)
            return tuple(field for field in judged.report.fields if field.read) if judged is not None else None
    return None
