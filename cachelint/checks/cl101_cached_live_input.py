"""CL101: a live input, or an alias of one, kept on the receiver."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext, of_field
from cachelint.model import FieldReport, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Fields that are an input or an alias of one."""
    self_held = context.analysis.unit.receiver_is_self

    def message(field: FieldReport) -> str:
        where = "the instance" if self_held else "ctx"
        return f"`{field.field}` keeps {_live(field)} on {where}: its memory may be overwritten or freed before backward reads it"

    yield from of_field(context, rule, message)


def _live(field: FieldReport) -> str:
    return field.reason.partition(" or an alias")[0]
