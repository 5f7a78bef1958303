"""The migration table in Markdown: ``Type | Cached field(s) | Class | Resolution``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cachelint.report import Report, Style
from cachelint.report.markdown import cell, code, link, table
from cachelint.report.rows import HEAD, Row, rows
from cachelint.report.totals import count


def render(report: Report, style: Style) -> Iterator[str]:
    """The table, then the totals line. The type links to its line."""
    listed = rows(report, show_all=style.show_all)
    if listed:
        yield from markdown_table(listed)
        yield "\n"
    yield count(len(report.files), report.types).line() + "\n"


def markdown_table(listed: Sequence[Row]) -> Iterator[str]:
    """One row a type."""
    yield from table(HEAD, [_cells(row) for row in listed])


def _cells(row: Row) -> tuple[str, ...]:
    fields = "; ".join((f"{remark}: " if remark else "") + ", ".join(map(code, names)) for remark, names in row.fields)
    what = "; ".join((", ".join(map(code, who)) + ": " if who else "") + cell(text) for who, text in row.resolutions)
    return (link(row.type, row.path, row.line), fields or "-", row.cls, what or "-")
