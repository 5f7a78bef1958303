"""Cut a module's text into its top-level statements without parsing it.

Most of a kernel library's text is kernel bodies that no verdict needs. The cut lets the index parse one
definition at a time; a cut that turns out wrong (the chunk does not parse) falls back to the whole module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_HEAD: Final = re.compile(r"(?:async\s+)?(def|class)\s+(\w+)")
_HEAD_BELOW: Final = re.compile(r"^(?:async\s+)?(def|class)\s+(\w+)", re.MULTILINE)
# A line that continues the statement before it although it starts in the first column.
_CONTINUES: Final = re.compile(r"(?:else|elif|except|finally|case)\b|[)\]}#\s\\]|$")
_FLUSH: Final = re.compile(r"\n(?=[^\s#)\]}\\])")
"""The end of a line before one that starts in the first column. It begins with a literal, which the search jumps to."""
_DOUBLE: Final = re.compile('"""')
_SINGLE: Final = re.compile("'''")
_TRIPLE: Final = re.compile(r'"""|\'\'\'')


@dataclass(frozen=True)
class Chunk:
    """One top-level statement: ``kind`` is ``def``, ``class`` or ``other``; ``start`` is its first line, 0-based."""

    kind: str
    name: str
    start: int
    text: str


def split(text: str) -> list[Chunk]:
    """Top-level statements of ``text`` in order; comments and blank lines belong to the chunk before them."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    starts = _starts(text)
    chunks: list[Chunk] = []
    if not starts:
        return chunks
    line = position = 0
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        line += text.count("\n", position, start)
        position = start
        chunks.append(Chunk(*_kind(text, start, end), line, text[start:end]))
    return chunks


def _starts(text: str) -> list[int]:
    """The positions at which statements start in the first column.

    Only lines that do, and lines with a triple quote, are looked at: most lines are neither.
    """
    flush = [match.end() for match in _FLUSH.finditer(text)]
    if text[:1] and text[0] not in " \t\n#":
        flush.insert(0, 0)
    # Two searches for a literal each are quicker than one for either.
    quoted = {text.rfind("\n", 0, at.start()) + 1 for each in (_DOUBLE, _SINGLE) for at in each.finditer(text)}
    starts: list[int] = []
    quote = ""
    decorated = False
    for position in sorted({*flush, *quoted}) if quoted else flush:
        if quote:
            if position in quoted:
                quote = _quote_after(_line(text, position), quote)
            continue
        if text[position] not in " \t\n#" and not _CONTINUES.match(text, position):
            if text[max(0, position - 2) : position] != "\\\n":
                if not decorated:
                    starts.append(position)
                decorated = text[position] == "@"
        if position in quoted:
            quote = _quote_after(_line(text, position), "")
    return starts


def _line(text: str, position: int) -> str:
    end = text.find("\n", position)
    return text[position:] if end < 0 else text[position : end + 1]


def _kind(text: str, start: int, end: int) -> tuple[str, str]:
    head = _HEAD.match(text, start, end)
    if head is None and text[start] == "@":
        head = _HEAD_BELOW.search(text, start, end)
    return ("other", "") if head is None else (head[1], head[2])


def _quote_after(line: str, quote: str) -> str:
    """The triple quote still open at the end of ``line``, or an empty string. A quote behind ``#`` does not open."""
    position = 0
    while True:
        if quote:
            close = line.find(quote, position)
            if close < 0:
                return quote
            position, quote = close + 3, ""
            continue
        match = _TRIPLE.search(line, position)
        if not match or ("#" in line[position : match.start()] and '"' not in line[position : match.start()]):
            return ""
        quote, position = match[0], match.end()
