"""CL104: forward's output kept on the receiver."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext, of_field
from cachelint.model import FieldReport, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Fields that are what forward returns."""
    self_held = context.analysis.unit.receiver_is_self

    def message(field: FieldReport) -> str:
        where = "the instance" if self_held else "ctx"
        what = f"`{field.field}` is {field.reason}, kept on {where}"
        if self_held:
            return what
        if field.reason.endswith("detached"):  # no grad_fn, and so no way back to ctx
            return f"{what}: nothing checks its version, and it lives as long as the graph"
        return f"{what}: a reference cycle through grad_fn that keeps everything on ctx alive"

    yield from of_field(context, rule, message)
