"""A table for terminals, as wide as the terminal. The only format that imports rich."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cachelint.report import Report, Style
from cachelint.report.rows import HEAD, Row, rows
from cachelint.report.text import CLASS_COLOURS, printable
from cachelint.report.totals import count


def render(report: Report, style: Style) -> Iterator[str]:
    """The table and the totals line."""
    listed = rows(report, show_all=style.show_all)
    if listed:
        yield drawn(table(listed), style)
    yield count(len(report.files), report.types).line() + "\n"


def table(listed: Sequence[Row], title: str = "") -> Table:
    """The rows with their place beneath the type and their class in its colour."""
    grid = Table(
        box=box.HORIZONTALS,
        show_lines=True,
        border_style="dim",
        title=title or None,
        title_justify="left",
        pad_edge=False,
        expand=False,
    )
    for name, ratio in zip(HEAD, (5, 5, None, 5), strict=True):
        grid.add_column(name, ratio=ratio, overflow="fold", min_width=9)
    for row in listed:
        grid.add_row(_type(row), _fields(row), _class(row), _resolution(row))
    return grid


def drawn(grid: Table, style: Style) -> str:
    """The table as text with escape sequences for the style's colour and width."""
    out = io.StringIO()
    console = Console(
        file=out,
        force_terminal=style.colour,
        color_system="standard" if style.colour else None,
        width=style.width,
        highlight=False,
    )
    console.print(grid)
    return out.getvalue()


def _type(row: Row) -> Text:
    return Text.assemble((printable(row.type), "bold"), "\n", (row.where, "dim"))


def _fields(row: Row) -> Text:
    """A line a field that needs work; the others by remark, a line each kind."""
    parts: list[Text] = []
    for remark, names in row.fields:
        colour = CLASS_COLOURS.get(remark or row.cls, "")
        if row.flagged and (remark or row.cls) in ("RECOMPUTE", "SAVE"):
            parts += [Text(printable(name), colour) for name in names]
        else:
            parts.append(Text.assemble((f"{remark}: " if remark else "", "dim"), printable(", ".join(names))))
    return Text("\n").join(parts) if parts else Text("-", "dim")


def _class(row: Row) -> Text:
    text = Text(row.cls)
    for name, colour in CLASS_COLOURS.items():
        text.highlight_words([name], colour if row.flagged or name == "SAFE" else "green")
    return text


def _resolution(row: Row) -> Text:
    lines = [
        Text.assemble((", ".join(who) + ": ", "dim") if who else "", printable(what)) for who, what in row.resolutions
    ]
    return Text("\n").join(lines) if lines else Text("-", "dim")
