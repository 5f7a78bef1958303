"""CL103: an intermediate that inputs cannot give back, kept on the receiver."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext, of_field
from cachelint.model import FieldReport, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Fields that are expensive, opaque or not derivable."""
    self_held = context.analysis.unit.receiver_is_self

    def message(field: FieldReport) -> str:
        where = "the instance" if self_held else "ctx"
        return f"`{field.field}` keeps an intermediate on {where} outside the contract: {field.reason}"

    yield from of_field(context, rule, message)
