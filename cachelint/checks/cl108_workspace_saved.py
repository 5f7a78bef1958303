"""CL108: the kept or saved value lives in a reusable workspace."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext, of_field
from cachelint.collect.held import written_globals
from cachelint.index.walk import code_of
from cachelint.infer.values import DEVICE, carried
from cachelint.model import FieldReport, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Fields in a shared buffer, and saved tensors in one: saving registers the tensor, not memory of its own."""

    def message(field: FieldReport) -> str:
        return _message(f"`{field.field}`", field.reason)

    yield from of_field(context, rule, message)
    analysis = context.analysis
    shared: frozenset[str] | None = None
    for save in analysis.log.saves:
        if save.phase != "forward" or save.file != analysis.unit.module.path or save.api.startswith("retain"):
            continue
        for expr, value in zip(save.exprs, save.values, strict=False):
            full = carried(value)
            roots = [root for root in full.roots if root.startswith("g:")]
            if not roots or not full.kinds & DEVICE:
                continue
            shared = written_globals(analysis) if shared is None else shared
            if not shared.isdisjoint(roots):  # a tensor that is merely kept in a table keeps its bytes
                target = expr.value if isinstance(expr, ast.Starred) else expr
                told = full.why.text if full.why is not None else "a shared workspace"
                yield context.at(rule, target, _message(f"`{code_of(target)}`", told))


def _message(name: str, reason: str) -> str:
    return f"{name} lives in a buffer that other calls share ({reason}): it needs a private copy, moving the reference does not help"
