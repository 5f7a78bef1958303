"""Two audits of one project compared: what was migrated since, and what is still owed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cachelint.model import FieldReport, TypeReport

REGISTERED = "registered"
NOT_CACHED = "no longer cached"


@dataclass(frozen=True, slots=True)
class Migration:
    """``migrated`` are today's types with the fields that were flagged at ``rev`` and are not now; what became of a
    field is its resolution. ``follow_up`` are today's types with their flagged fields. ``gone`` counts the flagged
    types of ``rev`` that are not there any more."""

    rev: str
    migrated: tuple[TypeReport, ...]
    follow_up: tuple[TypeReport, ...]
    gone: int


def compare(rev: str, before: Sequence[TypeReport], after: Sequence[TypeReport]) -> Migration:
    """Match types by path and name, then, for a file that moved, by a name that only one type has on each side."""
    now = {(kind.path, kind.type): kind for kind in after}
    by_name: dict[str, list[TypeReport]] = {}
    for kind in after:
        by_name.setdefault(kind.type, []).append(kind)
    names_before = [kind.type for kind in before]
    migrated: list[TypeReport] = []
    gone = 0
    for old in before:
        flagged = [field for field in old.fields if field.flagged]
        if not flagged:
            continue
        new = now.get((old.path, old.type))
        if new is None and names_before.count(old.type) == 1 and len(by_name.get(old.type, ())) == 1:
            new = by_name[old.type][0]
        if new is None:
            gone += 1
            continue
        mended = [(field, _fate(field, new)) for field in flagged]
        done = tuple(replace(field, resolution=fate) for field, fate in mended if fate)
        if done:
            row = " + ".join(name for name in ("RECOMPUTE", "SAVE") if any(field.cls == name for field in done))
            migrated.append(replace(new, row=row, fields=done))
    follow_up = [
        replace(kind, fields=tuple(field for field in kind.fields if field.flagged))
        for kind in after
        if any(field.flagged for field in kind.fields)
    ]
    return Migration(rev, tuple(migrated), tuple(follow_up), gone)


def _fate(field: FieldReport, new: TypeReport) -> str:
    """What became of a flagged field; empty when it is still flagged."""
    same = [other for other in new.fields if other.field == field.field]
    if any(other.flagged for other in same):
        return ""
    if any(other.registered for other in same):
        return REGISTERED
    if any(other.read for other in same):
        return f"{same[0].cls} now"
    return NOT_CACHED
