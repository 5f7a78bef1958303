"""Cut a module's text into its top-level statements without parsing it.

Most of a kernel library's text is kernel bodies that no verdict needs. The cut lets the index parse one
definition at a time; a cut that turns out wrong (the chunk does not parse) falls back to the whole module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEAD = re.compile(r"(?:async\s+)?(def|class)\s+(\w+)")
# A line that continues the statement before it although it starts in the first column.
_CONTINUES = re.compile(r"(?:else|elif|except|finally|case)\b|[)\]}#\s\\]|$")
_TRIPLE = re.compile(r'"""|\'\'\'')


@dataclass(frozen=True, slots=True)
class Chunk:
    """One top-level statement: ``kind`` is ``def``, ``class`` or ``other``; ``start`` is its first line, 0-based."""

    kind: str
    name: str
    start: int
    text: str


def split(text: str) -> list[Chunk]:
    """Top-level statements of ``text`` in order; comments and blank lines belong to the chunk before them."""
    usual = text.isascii() and not any(mark in text for mark in "\f\r\v\x1c\x1d\x1e")
    lines = text.splitlines(keepends=True) if usual else _physical_lines(text)
    starts: list[int] = []
    quote = ""
    decorated = False
    depth_guard = False
    for number, line in enumerate(lines):
        if quote:
            quote = _quote_after(line, quote)
            continue
        first = line[:1]
        if first and first not in " \t\n#" and not _CONTINUES.match(line) and not depth_guard:
            if not decorated:
                starts.append(number)
            decorated = first == "@"
        if '"""' in line or "'''" in line:
            quote = _quote_after(line, "")
        depth_guard = line.endswith("\\\n")
    chunks = []
    if not starts:
        return []
    ends = [*starts[1:], len(lines)]
    for start, end in zip(starts, ends, strict=True):
        body = "".join(lines[start:end])
        kind, name = _kind(lines, start, end)
        chunks.append(Chunk(kind, name, start, body))
    return chunks


def _physical_lines(text: str) -> list[str]:
    # str.splitlines also cuts at form feeds and other separators that Python does not count as line ends.
    return re.findall(r"[^\n]*\n|[^\n]+", text.replace("\r\n", "\n").replace("\r", "\n"))


def _kind(lines: list[str], start: int, end: int) -> tuple[str, str]:
    for number in range(start, end):
        line = lines[number]
        head = _HEAD.match(line)
        if head:
            return head[1], head[2]
        if not line.startswith("@") and number == start:
            return "other", ""
    return "other", ""


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
