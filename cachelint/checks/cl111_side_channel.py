"""CL111: a tensor goes from forward to backward beside the receiver."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext, of_field
from cachelint.model import FieldReport, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Slots that every call shares, and fields that came through one."""
    where = "the instance" if context.analysis.unit.receiver_is_self else "ctx"
    slots = {store.name for store in context.analysis.log.stores}

    def message(field: FieldReport) -> str:
        if field.field in slots:
            return (
                f"`{field.field}` carries a tensor to backward beside {where}, in a slot that the next call overwrites"
            )
        return f"`{field.field}` on {where} came through a class attribute or a module global, which the next call overwrites"

    yield from of_field(context, rule, message)
