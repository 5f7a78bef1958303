"""CL106: tensors inside a container kept on the receiver."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext, of_field
from cachelint.model import FieldReport, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Fields that carry tensors inside a list, tuple, dict or object."""
    self_held = context.analysis.unit.receiver_is_self

    def message(field: FieldReport) -> str:
        where = "the instance" if self_held else "ctx"
        return f"`{field.field}` is a container on {where} that carries tensors outside the contract: {field.reason}"

    yield from of_field(context, rule, message)
