"""The piece of source that a finding is about, with line numbers and carets.

Columns count characters, 1-based; an end column is the first one after the span. What the file holds is shown as it
is, but for tabs (expanded) and control characters (replaced), so that carets stand where they should.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cachelint.report.text import cell_width, paint, printable

CONTEXT = 2
LONGEST = 160
MOST_LINES = 8


@dataclass(frozen=True, slots=True)
class Span:
    """A range in a file, 1-based, the end column exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


def excerpt(lines: Sequence[str], span: Span, *, colour: bool = False, gutter: int = 0) -> Iterator[str]:
    """Lines of text (no newlines) with the span and what stands around it. Yields nothing outside the file."""
    if not 1 <= span.line <= len(lines):
        return
    last = min(max(span.end_line, span.line), len(lines))
    top = max(1, span.line - CONTEXT)
    bottom = min(len(lines), last + CONTEXT)
    gutter = max(gutter, len(str(bottom)))
    bar = paint("|", "blue", on=colour)
    yield f"{' ' * gutter} {bar}"
    skipping = False
    for number in range(top, bottom + 1):
        if span.line + MOST_LINES // 2 <= number <= last - MOST_LINES // 2 and last - span.line >= MOST_LINES:
            if not skipping:
                yield f"{'.' * min(3, gutter):>{gutter}} {bar}"
            skipping = True
            continue
        start, end = _columns(lines[number - 1], span, number, last)
        text, marks = _window(lines[number - 1], start, end)
        label = paint(f"{number:>{gutter}}", "blue", on=colour)
        yield f"{label} {bar} {text}".rstrip()
        if marks:
            yield f"{' ' * gutter} {bar} {paint(marks, 'red', 'bold', on=colour)}"
    yield f"{' ' * gutter} {bar}"


def _columns(line: str, span: Span, number: int, last: int) -> tuple[int, int]:
    """The 0-based character range of a line that the span covers; empty outside it."""
    if not span.line <= number <= last:
        return (0, 0)
    indent = len(line) - len(line.lstrip())
    start = span.column - 1 if number == span.line else indent
    end = span.end_column - 1 if number == span.end_line else len(line.rstrip())
    start = min(max(start, 0), len(line))
    return (start, min(max(end, start + 1), max(len(line), start + 1)))


def _window(line: str, start: int, end: int) -> tuple[str, str]:
    """The line as shown, and its carets. A long line is cut around the range."""
    line = line.rstrip()
    left = 0
    if len(line) > LONGEST and end > LONGEST - 20:
        left = max(0, start - 40)
    shown = line[left : left + LONGEST]
    head = "..." if left else ""
    tail = "..." if len(line) > left + LONGEST else ""
    if shown.isascii() and shown.isprintable():  # a character a column: what most lines are
        first, last = max(start - left, 0), min(max(end - left, 0), len(shown))
        caret = "^" if start == len(line) and end > start else ""
        marks = " " * (len(head) + min(first, len(shown))) + "^" * max(last - first, 0)
        return head + shown + tail, marks + caret if "^" in marks + caret else ""
    text, marks, column = [head], " " * len(head), len(head)
    for offset, char in enumerate(shown, start=left):
        wide = cell_width(char, column)
        text.append(" " * wide if char == "\t" else printable(char))
        marks += ("^" if start <= offset < end else " ") * wide
        column += wide
    if start == len(line) and end > start:
        marks += "^"
    return "".join(text) + tail, marks.rstrip()
