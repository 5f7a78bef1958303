"""A plain table in columns, for pipes and logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cachelint.report import Report, Style
from cachelint.report.rows import HEAD, Row, rows
from cachelint.report.text import CLASS_COLOURS, pad, paint, printable, width
from cachelint.report.totals import count

_WIDEST = (40, 44, 24, 60)


def render(report: Report, style: Style) -> Iterator[str]:
    """The table, an empty line, the totals line."""
    yield from table(rows(report, show_all=style.show_all), style)
    yield count(len(report.files), report.types).line() + "\n"


def table(listed: Sequence[Row], style: Style) -> Iterator[str]:
    """Columns as wide as their cells need, within bounds; a longer cell pushes the rest of its line aside."""
    if not listed:
        return
    cells = [
        tuple(map(printable, (row.type, row.field_cell() or "-", row.cls, row.resolution_cell() or "-")))
        for row in listed
    ]
    widths = [min(most, max(width(line[position]) for line in (HEAD, *cells))) for position, most in enumerate(_WIDEST)]
    yield (
        paint(
            "  ".join((*(pad(text, columns) for text, columns in zip(HEAD, widths, strict=True)), "Where")),
            "bold",
            on=style.colour,
        )
        + "\n"
    )
    for row, line in zip(listed, cells, strict=True):
        padded = [pad(text, columns) for text, columns in zip(line, widths, strict=True)]
        padded[2] = _coloured(padded[2], row, style)
        yield "  ".join((*padded, row.where)) + "\n"
    yield "\n"


def _coloured(text: str, row: Row, style: Style) -> str:
    worst = next((name for name in ("SAVE", "RECOMPUTE") if name in row.cls and row.flagged), "SAFE")
    return paint(text, CLASS_COLOURS[worst], on=style.colour)
