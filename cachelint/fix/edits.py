"""What a remedy answers: edits at places of a file, and what they mend.

Everything here is data. Places are spans of the file's text: lines 1-based, columns 0-based in characters.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from cachelint.model import Applicability, Finding

_NEWLINE = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of text."""

    line: int
    column: int
    end_line: int
    end_column: int

    def covers(self, other: Span) -> bool:
        """Whether ``other`` lies inside."""
        start, end = (self.line, self.column), (self.end_line, self.end_column)
        return start <= (other.line, other.column) and (other.end_line, other.end_column) <= end

    def overlaps(self, other: Span) -> bool:
        """Whether the two share text."""
        mine, theirs = (self.line, self.column), (other.line, other.column)
        return mine < (other.end_line, other.end_column) and theirs < (self.end_line, self.end_column)


class Text:
    """The lines of a file, and where the nodes of its ``ast`` tree lie in them."""

    def __init__(self, text: str) -> None:
        self.text = text
        if "\r" in text:
            self.lines = [line for line in _NEWLINE.split(text) if line]
        else:
            *whole, last = text.split("\n")
            self.lines = [f"{line}\n" for line in whole] + ([last] if last else [])

    def column(self, line: int, offset: int) -> int:
        """A column in characters from one in UTF-8 bytes."""
        whole = self.lines[line - 1]
        return offset if whole.isascii() else len(whole.encode()[:offset].decode("utf-8", "replace"))

    def span(self, node: ast.AST) -> Span:
        """Where a statement or expression stands."""
        assert isinstance(node, (ast.stmt, ast.expr, ast.arg, ast.keyword))
        end_line, end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return Span(node.lineno, self.column(node.lineno, node.col_offset), end_line, self.column(end_line, end))

    def between(self, span: Span) -> str:
        """The text of a span."""
        if span.line == span.end_line:
            return self.lines[span.line - 1][span.column : span.end_column]
        first = self.lines[span.line - 1][span.column :]
        last = self.lines[span.end_line - 1][: span.end_column]
        return "".join([first, *self.lines[span.line : span.end_line - 1], last])

    def source(self, node: ast.AST, changes: dict[Span, str] | None = None) -> str:
        """The text of a node, with stretches inside it replaced, and without the indentation of its first line."""
        own = self.span(node)
        pieces, line, column = [], own.line, own.column
        for span, code in sorted((changes or {}).items()):
            if own.covers(span):
                pieces += [self.between(Span(line, column, span.line, span.column)), code]
                line, column = span.end_line, span.end_column
        pieces.append(self.between(Span(line, column, own.end_line, own.end_column)))
        whole = self.lines[own.line - 1]
        margin = whole[: len(whole) - len(whole.lstrip())]
        return "".join(pieces).replace(f"\n{margin}", "\n") if margin else "".join(pieces)


WIDTH = 110
"""Columns after which a new statement is broken into several lines."""


def laid_out(head: str, items: Sequence[str], tail: str, column: int) -> str:
    """``head``, the items with commas, ``tail``: in one line, or in several where that would be too long.

    ``head`` ends with the opening bracket, ``tail`` begins with the closing one; the statement stands at ``column``.
    """
    line = f"{head}{', '.join(items)}{tail}"
    if column + len(line) <= WIDTH:
        return line
    indent = "    "  # the rewriter adds that of the block
    rows = [indent]
    for item in items:
        if rows[-1] != indent and column + len(rows[-1]) + len(item) + 2 > WIDTH:
            rows.append(indent)
        rows[-1] += f"{'' if rows[-1] == indent else ' '}{item},"
    return "\n".join([head, *rows, tail])


def assigned(target: str, value: str, indent: int = 8) -> str:
    """``target = value``, with the value in brackets on a line of its own where that would be too long."""
    line = f"{target} = {value}"
    return line if indent + len(line) <= WIDTH or "\n" in value else f"{target} = (\n    {value}\n)"


# -- edits -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replace:
    """The expression at ``span`` becomes ``code``."""

    span: Span
    code: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The statement at ``span`` becomes these statements; it goes away when there are none."""

    span: Span
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Before:
    """Statements in front of the one at ``span``."""

    span: Span
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class After:
    """Statements behind the one at ``span``."""

    span: Span
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Extend:
    """More arguments of the call at ``span``, more items of the tuple or list there, more parameters of the function
    whose ``def`` or more bases of the class whose ``class`` stands there; behind the present ones, or in front."""

    span: Span
    items: tuple[str, ...]
    front: bool = False


@dataclass(frozen=True, slots=True)
class Require:
    """Parameters of the function whose ``def`` stands at ``span`` lose their default, and the ``None`` of their type."""

    span: Span
    names: tuple[str, ...]


Edit = Replace | Rewrite | Before | After | Extend | Require


@dataclass(frozen=True, slots=True)
class Claim:
    """What a plan relies on: the function whose ``def`` stands at ``span`` has the receiver ``receiver`` and uses the
    field ``field`` of it at exactly these ``places``: kind (``load``, ``store``, ``delete``, ``test``), line, column.
    """

    span: Span
    receiver: str
    field: str
    places: frozenset[tuple[str, int, int]]


# -- outcomes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Edits of another file of the project, which keep its meaning for whoever uses it: they are made before those of
    the file itself, which rely on them."""

    path: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to mend ``findings`` together. ``scope`` is the text whose meaning the edits rely on: two plans whose scopes
    overlap are carried out one after the other, the second planned anew."""

    findings: tuple[Finding, ...]
    edits: tuple[Edit, ...]
    applicability: Applicability
    description: str
    scope: tuple[Span, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()

    def conflicts(self, other: Plan) -> bool:
        """Whether carrying out one may invalidate the other."""
        if {one.path for one in self.elsewhere} & {one.path for one in other.elsewhere}:
            return True
        mine = (*self.scope, *(edit.span for edit in self.edits))
        theirs = (*other.scope, *(edit.span for edit in other.edits))
        return any(a.overlaps(b) for a in mine for b in theirs)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a finding is left alone, in one sentence. ``kind`` is a word or two that a summary counts by."""

    finding: Finding
    reason: str
    kind: str


Outcome = Plan | Refusal
