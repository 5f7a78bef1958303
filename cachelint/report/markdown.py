"""Pieces of Markdown that formats share: cells, links, tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from cachelint.report.text import pad, printable, width

_WIDEST = 60
"""A column is padded up to here; a longer cell stands over, and the raw table stays readable."""


def cell(text: str) -> str:
    """Text that stays in its cell. Code spans keep their characters; outside them Markdown's own are escaped."""
    pieces = re.split(r"(`[^`]*`)", printable(text))
    return "".join(_escape_bars(piece) if piece.startswith("`") else _escape(piece) for piece in pieces)


def code(text: str) -> str:
    """A code span that holds the text whatever backticks are in it."""
    text = printable(text)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    if not longest:
        return f"`{_escape_bars(text)}`"
    fence = "`" * (longest + 1)
    return f"{fence} {_escape_bars(text)} {fence}"


def link(text: str, path: str, line: int) -> str:
    """A link to a line of a file in the repository."""
    return f"[{_escape(printable(text))}]({quote(path, errors='surrogateescape')}#L{line})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A pipe table; columns are padded so that the source reads as a table too."""
    widths = [min(_WIDEST, max(width(row[position]) for row in (head, *rows))) for position in range(len(head))]
    widths[-1] = len(head[-1])
    yield _line(head, widths)
    yield "| " + " | ".join("-" * max(3, columns) for columns in widths) + " |\n"
    for row in rows:
        yield _line(row, widths)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(pad(text, max(3, columns)) for text, columns in zip(row, widths, strict=True)) + " |\n"


def _escape(text: str) -> str:
    """Underscores inside a word mean nothing to Markdown and stay as they are."""
    return re.sub(r"[\\*\[\]<>|]|(?<!\w)_|_(?!\w)", lambda match: "\\" + match[0], text)


def _escape_bars(text: str) -> str:
    return text.replace("|", "\\|")
