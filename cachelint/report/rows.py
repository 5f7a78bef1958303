"""Rows of the audit's tables: one a type, ``Type | Cached field(s) | Class | Resolution``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cachelint.model import FieldClass, FieldReport, TypeReport
from cachelint.report import Report
from cachelint.report.place import where

NOTHING = "nothing to do"
"""The resolution of a field that is fine as it is."""

HEAD = ("Type", "Cached field(s)", "Class", "Resolution")


_PLURALS = ((" it is ", " they are "), ("the live input ", "the live inputs "))


@dataclass(frozen=True, slots=True)
class Row:
    """One type. ``fields`` are pairs of a remark, which may be empty, and the names it holds for; ``resolutions`` pairs
    of the names that a remedy is for (empty: all that need one) and the remedy."""

    type: str
    path: str
    line: int
    where: str
    fields: tuple[tuple[str, tuple[str, ...]], ...]
    cls: str
    resolutions: tuple[tuple[tuple[str, ...], str], ...]
    flagged: bool

    def field_cell(self) -> str:
        """``last_input; never read: mask``."""
        return "; ".join(
            f"{remark}: {', '.join(names)}" if remark else ", ".join(names) for remark, names in self.fields
        )

    def resolution_cell(self) -> str:
        """``last_input: read x; mask: remove it``."""
        return "; ".join(f"{', '.join(who)}: {what}" if who else what for who, what in self.resolutions)


def listed(types: Iterable[TypeReport], *, show_all: bool) -> list[TypeReport]:
    """The types that a table lists: those that cache something or whose children do, or all of them."""
    return [kind for kind in types if show_all or kind.fields or FieldClass.SAVE.value in kind.row]


def rows(report: Report, *, show_all: bool) -> list[Row]:
    """One row a listed type, in the order of the report."""
    return [row(kind, where(report, kind.path, kind.line)) for kind in listed(report.types, show_all=show_all)]


def row(kind: TypeReport, place: str) -> Row:
    """The row of one type."""
    groups: dict[str, list[str]] = {}
    for field in sorted(kind.fields, key=urgency):
        names = groups.setdefault(_remark(field, kind.row), [])
        if field.field not in names:
            names.append(field.field)
    return Row(
        type=kind.type,
        path=kind.path,
        line=kind.line,
        where=place,
        fields=tuple((remark, tuple(names)) for remark, names in groups.items()),
        cls=kind.row if kind.fields or FieldClass.SAVE.value in kind.row else "-",
        resolutions=_resolutions(kind.fields),
        flagged=any(field.flagged for field in kind.fields),
    )


def urgency(field: FieldReport) -> int:
    """Fields that need work come first, in the order of the source."""
    return 0 if field.flagged else 1 if not field.read else 3 if field.registered else 2


def _remark(field: FieldReport, row: str) -> str:
    """What tells a field from the others of its row: its class, unless the row has no other."""
    if not field.read:
        return "registered, never read" if field.registered else "never read"
    if field.registered:
        return "registered"
    return "" if field.cls.value == row else field.cls.value


def _resolutions(fields: Sequence[FieldReport]) -> tuple[tuple[tuple[str, ...], str], ...]:
    """What to do, grouped by remedy. A harmless field needs no word beside one that needs work.

    Remedies that differ in the field's own name alone become one that names them all, and needs no label.
    """
    urgent = [field for field in fields if field.flagged or (not field.read and field.resolution != NOTHING)]
    if not urgent:
        calm = "registered" if any(field.registered for field in fields) else NOTHING
        return (((), calm),) if fields else ()
    groups: dict[str, list[str]] = {}
    for field in urgent:
        names = groups.setdefault(_named(field.field).sub("\0", field.resolution), [])
        if field.field not in names:
            names.append(field.field)
    told: list[tuple[tuple[str, ...], str]] = []
    for template, names in groups.items():
        what = template.replace("\0", ", ".join(names))
        if len(names) > 1 and "\0" in template:
            for one, many in _PLURALS:
                what = what.replace(one, many)
        alone = "\0" in template or (len(groups) == 1 and len(urgent) == len(fields))
        told.append((() if alone else tuple(names), what))
    return tuple(told)


def _named(name: str) -> re.Pattern[str]:
    """The name as a word of its own, not as part of a longer one or of an attribute."""
    return re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w.\[])")
