"""CL111: a tensor goes from forward to backward beside the receiver."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext, of_field
from cachelint.model import FieldReport, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Fields that came through a global or a class attribute."""
    self_held = context.analysis.unit.receiver_is_self

    def message(field: FieldReport) -> str:
        where = "the instance" if self_held else "ctx"
        return (
            f"`{field.field}` reached {where} through a class attribute or a module global, which the next call "
            f"overwrites: {field.reason}. Return it from forward, or register it there"
        )

    yield from of_field(context, rule, message)
