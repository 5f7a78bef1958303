"""CL110: a composite is safe itself, but a helper object that it calls keeps device state that nobody registers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.model import Finding

_CONTRACT = frozenset(("Persistent", "Parameter"))
"""Objects of the runtime that are there to hold memory."""


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Helper objects called from forward and backward, whose class is no layer and so has no findings of its own."""
    analysis = context.analysis
    unit = analysis.unit
    if unit.trainer or unit.dialect.name not in ("graph-node", "layer") or not analysis.log.child_calls:
        return
    if any(field.flagged for field in context.report.fields):
        return
    for child in context.composites.children(analysis):
        judged = context.composites.judge(child) if child.backward else None
        if judged is None or judged.layer or child.inst.info.name in _CONTRACT:
            continue
        kept = [field for field in judged.report.fields if field.flagged]
        if kept:
            names = ", ".join(f"`{field.field}`" for field in kept)
            holder = f"`self.{child.attribute}`" if child.attribute else f"a {child.inst.info.name}"
            call = child.forward[0]
            node: ast.AST | None = call.node if call.file == unit.module.path else None
            if node is None and unit.info is not None:
                node = unit.info.node
            if node is not None:
                yield context.at(
                    rule,
                    node,
                    f"{holder} keeps {names} from forward to backward, and nobody registers it: this class looks safe and is not. "
                    f"Let {child.inst.info.name} register what it keeps, and hand it the saver",
                )
