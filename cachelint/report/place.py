"""Places as people look them up: ``path:line``, and in a notebook ``path:cell 3:line``.

Reports carry lines of a notebook's virtual text, in which its code cells stand one below the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from cachelint.report import Report
from cachelint.report.excerpt import Span
from cachelint.report.text import printable

_MARKER = "# %% [cachelint cell "


def line_of(report: Report, path: str, line: int) -> str:
    """``12``, or ``cell 3:2``."""
    cell = report.cell(path, line)
    return f"cell {cell[0]}:{cell[1]}" if cell else str(line)


def where(report: Report, path: str, line: int) -> str:
    """``path:12``, or ``path:cell 3:2``."""
    return f"{printable(path)}:{line_of(report, path, line)}"


def lines_around(report: Report, path: str, span: Span) -> tuple[Sequence[str], Span]:
    """The lines of a file and a span in them; of a notebook the cell's lines alone, with the span in the cell."""
    lines = report.source_lines(path)
    cell = report.cell(path, span.line)
    if cell is None:
        return lines, span
    above = span.line - cell[1]
    inside = lines[above:]
    end = next((number for number, line in enumerate(inside) if line.startswith(_MARKER)), len(inside))
    return inside[:end], dataclasses.replace(span, line=span.line - above, end_line=span.end_line - above)
