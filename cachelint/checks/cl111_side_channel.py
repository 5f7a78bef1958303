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
                f"`{field.field}` carries a tensor from forward to backward beside {where}, and the next call overwrites it: "
                f"{field.reason}. Save it for backward instead"
            )
        return (
            f"`{field.field}` reached {where} through a class attribute or a module global, which the next call "
            f"overwrites: {field.reason}. Return it from forward, or register it there"
        )

    yield from of_field(context, rule, message)
