"""CL105: a random draw kept on the receiver."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext, of_field
from cachelint.model import FieldReport, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Fields that hold a random draw or generator state."""
    self_held = context.analysis.unit.receiver_is_self

    def message(field: FieldReport) -> str:
        where = "the instance" if self_held else "ctx"
        return f"`{field.field}` keeps a random draw on {where} outside the contract: drawing again gives other values"

    yield from of_field(context, rule, message)
