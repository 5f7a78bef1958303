"""Counts over the types of an audit, and the line that says them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cachelint.model import FieldClass, TypeReport
from cachelint.report.text import plural


@dataclass(frozen=True, slots=True)
class Totals:
    """``safe``, ``recompute`` and ``save`` count fields that backward reads, registered ones too; ``findings`` those
    of them that are RECOMPUTE or SAVE and not registered; ``flagged`` types with at least one finding; ``unread``
    fields that nobody reads, which count in no class; ``empty`` types that cache nothing."""

    files: int
    types: int
    flagged: int
    empty: int
    fields: int
    safe: int
    recompute: int
    save: int
    registered: int
    unread: int
    findings: int

    def shape(self) -> dict[str, int]:
        """The ``totals`` of the JSON report."""
        return {
            "files": self.files,
            "types": self.types,
            "fields": self.fields,
            "SAFE": self.safe,
            "RECOMPUTE": self.recompute,
            "SAVE": self.save,
            "findings": self.findings,
            "flagged": self.flagged,
            "registered": self.registered,
            "unread": self.unread,
            "empty": self.empty,
        }

    def line(self) -> str:
        """The totals line of the tables."""
        classes = f"{self.safe} SAFE, {self.recompute} RECOMPUTE, {self.save} SAVE; {self.registered} registered"
        unread = f"; {self.unread} never read" if self.unread else ""
        empty = f", {self.empty} without a cached field" if self.empty else ""
        types = f"{plural(self.types, 'type')}, {self.flagged} flagged{empty}"
        return f"{types}; {plural(self.fields, 'field')}: {classes}{unread}"


def count(files: int, types: Sequence[TypeReport]) -> Totals:
    """Count the types of a run over a number of files."""
    fields = [field for kind in types for field in kind.fields]
    read = [field for field in fields if field.read]
    return Totals(
        files=files,
        types=len(types),
        flagged=sum(any(field.flagged for field in kind.fields) for kind in types),
        empty=sum(not kind.fields for kind in types),
        fields=len(fields),
        safe=sum(field.cls is FieldClass.SAFE for field in read),
        recompute=sum(field.cls is FieldClass.RECOMPUTE for field in read),
        save=sum(field.cls is FieldClass.SAVE for field in read),
        registered=sum(field.registered for field in read),
        unread=len(fields) - len(read),
        findings=sum(field.flagged for field in fields),
    )
