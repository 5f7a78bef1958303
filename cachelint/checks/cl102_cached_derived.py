"""CL102: a value that is cheap to derive, kept on the receiver."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext, of_field
from cachelint.model import FieldReport, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Fields that backward could derive from live inputs."""
    self_held = context.analysis.unit.receiver_is_self

    def message(field: FieldReport) -> str:
        where = "the instance" if self_held else "ctx"
        return f"`{field.field}` is cheap to derive from the live inputs, yet kept on {where} outside the contract"

    yield from of_field(context, rule, message)
