"""Rows of the audit's tables: one a type, ``Type | Cached field(s) | Class | Resolution``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cachelint.model import FieldClass, FieldReport, TypeReport

HEAD = ("Type", "Cached field(s)", "Class", "Resolution")


@dataclass(frozen=True, slots=True)
class Row:
    """One type. ``fields`` are pairs of a name and a remark, which may be empty; ``resolutions`` pairs of the names
    that a remedy is for (empty: all of them) and the remedy."""

    type: str
    path: str
    line: int
    dialect: str
    fields: tuple[tuple[str, str], ...]
    cls: str
    resolutions: tuple[tuple[tuple[str, ...], str], ...]
    flagged: bool

    def field_cell(self) -> str:
        """``last_input, mask (never read)``."""
        return ", ".join(f"{name} ({remark})" if remark else name for name, remark in self.fields)

    def resolution_cell(self) -> str:
        """``last_input: read x; mask: remove it``."""
        return "; ".join(f"{', '.join(who)}: {what}" if who else what for who, what in self.resolutions)


def listed(types: Iterable[TypeReport], *, show_all: bool) -> list[TypeReport]:
    """The types that a table lists: those that cache something or whose children do, or all of them."""
    return [kind for kind in types if show_all or kind.fields or FieldClass.SAVE.value in kind.row]


def rows(types: Iterable[TypeReport], *, show_all: bool) -> list[Row]:
    """One row a listed type, in the order of the report."""
    return [row(kind) for kind in listed(types, show_all=show_all)]


def row(kind: TypeReport) -> Row:
    """The row of one type."""
    return Row(
        type=kind.type,
        path=kind.path,
        line=kind.line,
        dialect=kind.dialect,
        fields=tuple(dict.fromkeys((field.field, _remark(field)) for field in kind.fields)),
        cls=kind.row if kind.fields or FieldClass.SAVE.value in kind.row else "-",
        resolutions=_resolutions(kind.fields),
        flagged=any(field.flagged for field in kind.fields),
    )


def _remark(field: FieldReport) -> str:
    marks = []
    if field.registered:
        marks.append("registered")
    if not field.read:
        marks.append("never read")
    return ", ".join(marks)


def _resolutions(fields: Sequence[FieldReport]) -> tuple[tuple[tuple[str, ...], str], ...]:
    """What to do, grouped by remedy. A harmless field needs no word beside one that needs work."""
    urgent = [field for field in fields if field.flagged or not field.read]
    chosen = urgent or [field for field in fields if field.registered] or list(fields)
    groups: dict[str, list[str]] = {}
    for field in chosen:
        names = groups.setdefault(field.resolution, [])
        if field.field not in names:
            names.append(field.field)
    if len(groups) == 1 and len(chosen) == len(fields):
        return (((), next(iter(groups))),)
    return tuple((tuple(names), what) for what, names in groups.items())
