"""CL108: the kept value lives in a reusable workspace."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext, of_field
from cachelint.model import FieldReport, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Fields in a shared buffer."""
    self_held = context.analysis.unit.receiver_is_self

    def message(field: FieldReport) -> str:
        where = "the instance" if self_held else "ctx"
        return (
            f"`{field.field}` lives in a buffer that other calls share ({field.reason}): "
            f"it needs a private copy, moving the reference does not help"
        )

    yield from of_field(context, rule, message)
