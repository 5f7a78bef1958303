"""CL107: device state that must outlive the step."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext, of_field
from cachelint.model import FieldReport, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Fields that a later step reads."""

    def message(field: FieldReport) -> str:
        return f"`{field.field}` keeps device state across steps: pins that end with backward do not cover it"

    yield from of_field(context, rule, message)
