"""Saving and unpacking that don't fit: what is saved is brought in line with what backward unpacks."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from cachelint.checks import FileContext, TypeContext
from cachelint.checks.support import saves, unpackings
from cachelint.fix.edits import Extend, Outcome, Plan, Refusal, Replace, Text
from cachelint.fix.functions.flow import Flow
from cachelint.index.module import FunctionNode
from cachelint.model import Applicability, Finding

CODES = frozenset(("CL211",))


def plan(file: FileContext, findings: Sequence[Finding]) -> Iterator[Outcome]:
    """A plan an unpacking; it is unsafe, since only a person knows which side is right."""
    text = Text(file.module.text)
    for context in file.types:
        for finding in findings:
            if finding.type == context.report.type:
                yield _at(context, text, finding)


def _at(context: TypeContext, text: Text, finding: Finding) -> Outcome:
    log = context.analysis.log
    calls = saves(log)
    use = next((u for u in unpackings(log) if getattr(u.event.node, "lineno", 0) == finding.line), None)
    wanted = [t.id if isinstance(t, ast.Name) else "" for t in use.targets] if use is not None and use.targets else []
    if len(calls) != 1 or not wanted or not all(wanted) or calls[0].file != context.analysis.unit.module.path:
        return Refusal(finding, "only one save and one unpacking into plain names are brought in line", "several saves")
    call = calls[0].node
    saved = [a.id if isinstance(a, ast.Name) else "" for a in call.args]
    if call.keywords or any(isinstance(a, ast.Starred) for a in call.args):
        return Refusal(finding, "a star hides what is saved", "several saves")
    if len(saved) > len(wanted):
        if not set(wanted) <= set(saved) or [n for n in saved if n in wanted] != wanted:
            return Refusal(finding, "the names do not show which saved tensor is one too many", "names differ")
        kept = [text.source(arg) for arg, name in zip(call.args, saved, strict=True) if name in wanted]
        edit: Replace | Extend = Replace(text.span(call), f"{text.source(call.func)}({', '.join(kept)})")
        told = f"save {', '.join(f'`{n}`' for n in wanted)} alone, as backward unpacks"
    else:
        more = wanted[len(saved) :]
        scope = _scope(context, call)
        known = Flow(scope) if scope is not None else None
        missing = [n for n in more if known is None or (n not in known.parameters and n not in known.bindings)]
        if saved != wanted[: len(saved)] or missing:
            name = (missing or more)[0]
            return Refusal(finding, f"forward has no `{name}` that could be saved as well", "names differ")
        edit = Extend(text.span(call), tuple(more))
        told = f"save {', '.join(f'`{n}`' for n in more)} as well, as backward unpacks"
    return Plan(
        (finding,), (edit,), Applicability.UNSAFE, told, notes=("it is not known whether forward or backward is right",)
    )


def _scope(context: TypeContext, call: ast.Call) -> FunctionNode | None:
    unit = context.analysis.unit
    for method in (*unit.forward, *unit.setup):
        if any(node is call for node in ast.walk(method.node)):
            return method.node
    return None
