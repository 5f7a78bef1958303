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
        return f"`{field.field}` is forward's own output, kept on {where}" + (
            "" if self_held else ": a reference cycle through grad_fn that keeps everything on ctx alive"
        )

    yield from of_field(context, rule, message)
