"""One JSON document, always complete: ``{"schema", "tool", "types", "totals", "errors"}``."""

from __future__ import annotations

import json
from collections.abc import Iterator

from cachelint.report import Report, Style, shape
from cachelint.report.totals import count


def render(report: Report, style: Style) -> Iterator[str]:
    """The document, type by type, so that a large tree needs no second copy in memory."""
    head = {"schema": shape.SCHEMA, "tool": shape.tool()}
    tail = {
        "totals": count(len(report.files), report.types).shape(),
        "errors": [shape.error(error) for error in report.errors],
    }
    yield json.dumps(head, indent=2, ensure_ascii=False)[:-2] + ',\n  "types": ['
    for position, kind in enumerate(report.types):
        yield (",\n    " if position else "\n    ") + _nested(
            json.dumps(shape.kind(kind), indent=2, ensure_ascii=False), 4
        )
    yield ("\n  " if report.types else "") + "],\n  " + json.dumps(tail, indent=2, ensure_ascii=False)[4:] + "\n"


def _nested(text: str, blanks: int) -> str:
    return text.replace("\n", "\n" + " " * blanks)
