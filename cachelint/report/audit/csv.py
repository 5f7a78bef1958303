"""One line a field, for spreadsheets; a type that caches nothing has a line with ``--all``."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from cachelint.report import Report, Style
from cachelint.report.rows import listed

HEAD = (
    "path",
    "type_line",
    "type",
    "dialect",
    "type_class",
    "field",
    "line",
    "column",
    "class",
    "storage",
    "origin",
    "registered",
    "read",
    "persistent",
    "rule",
    "confidence",
    "reason",
    "resolution",
)


def render(report: Report, style: Style) -> Iterator[str]:
    """RFC 4180 with LF line ends; booleans are ``true`` and ``false``."""
    yield _line(HEAD)
    for kind in listed(report.types, show_all=style.show_all):
        start = (kind.path, kind.line, kind.type, kind.dialect, kind.row)
        if not kind.fields:
            yield _line((*start, *("" for _ in HEAD[len(start) :])))
        for field in kind.fields:
            yield _line(
                (
                    *start,
                    field.field,
                    field.line,
                    field.column,
                    field.cls.value,
                    field.storage.value,
                    field.origin.value,
                    str(field.registered).lower(),
                    str(field.read).lower(),
                    str(field.persistent).lower(),
                    field.rule or "",
                    field.confidence.value,
                    field.reason,
                    field.resolution,
                )
            )


def _line(values: tuple[object, ...]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(values)
    return out.getvalue()
