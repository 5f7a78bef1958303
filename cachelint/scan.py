"""Comments and logical lines of a Python text, found without parsing it.

A regular expression knows just enough of the language: strings hide comments, brackets and backslashes join lines.
It works on any text, also on syntax newer or older than the running Python, and never fails.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
      (?P<comment>\#[^\r\n]*)
    | (?P<string>
          '{3} [^'\\]* (?: (?: \\. | '(?!'') ) [^'\\]* )* (?: '{3} | \Z )
        | "{3} [^"\\]* (?: (?: \\. | "(?!"") ) [^"\\]* )* (?: "{3} | \Z )
        | '[^'\\\r\n]* (?: \\(?:\r\n|.) [^'\\\r\n]* )* '?
        | "[^"\\\r\n]* (?: \\(?:\r\n|.) [^"\\\r\n]* )* "?
      )
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<joined>\\(?:\r\n|\r|\n))
    | (?P<newline>\r\n|\r|\n)
    """,
    re.VERBOSE | re.DOTALL,
)
_NEWLINE = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Comment:
    """One comment: its line (1-based), its offset in the text, its text from the ``#`` on.

    ``own_line`` says that nothing else stands on the line.
    """

    line: int
    offset: int
    text: str
    own_line: bool


@dataclass(frozen=True, slots=True)
class Statement:
    """A logical line: its first and last physical line, and the offset where its last line's code ends."""

    first: int
    last: int
    end: int


@dataclass(frozen=True, slots=True)
class Scan:
    """The comments and the logical lines of one text, both in order."""

    comments: tuple[Comment, ...]
    statements: tuple[Statement, ...]

    def statement_at(self, line: int) -> Statement | None:
        """The logical line that covers a physical line."""
        at = bisect_right(self.statements, line, key=lambda statement: statement.first) - 1
        if at >= 0 and self.statements[at].last >= line:
            return self.statements[at]
        return None

    def statement_after(self, line: int) -> Statement | None:
        """The first logical line that starts below a physical line."""
        at = bisect_right(self.statements, line, key=lambda statement: statement.first)
        return self.statements[at] if at < len(self.statements) else None


def scan(text: str) -> Scan:
    """Find the comments and logical lines of ``text``."""
    comments: list[Comment] = []
    statements: list[Statement] = []
    line, line_start, depth = 1, 0, 0
    first = 0  # where the open logical line began; 0 when none is open
    code_end = 0  # offset just after the last code
    seen = 0  # offset just after the last token
    for token in _TOKEN.finditer(text):
        kind, start, end = token.lastgroup, token.start(), token.end()
        gap = text[seen:start].rstrip()
        if gap:
            code_end = seen + len(gap)
            first = first or line
        seen = end
        if kind == "comment":
            comments.append(Comment(line, start, token[0], own_line=code_end <= line_start and not first))
        elif kind == "newline":
            if first and depth == 0:
                statements.append(Statement(first, line, code_end))
                first = 0
            line, line_start = line + 1, end
        elif kind == "joined":
            line, line_start = line + 1, end
        else:
            first = first or line
            code_end = end
            if kind == "open":
                depth += 1
            elif kind == "close":
                depth = max(0, depth - 1)
            else:
                for newline in _NEWLINE.finditer(token[0]):
                    line, line_start = line + 1, start + newline.end()
    tail = text[seen:].rstrip()
    if tail:
        code_end = seen + len(tail)
        first = first or line
    if first:
        statements.append(Statement(first, line, code_end))
    return Scan(tuple(comments), tuple(statements))


def logical_end(text: str, start: int) -> int:
    """The offset just after the newline that ends the logical line starting at ``start`` (or the text's length)."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        kind = token.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
        elif kind == "newline" and depth == 0:
            return token.end()
    return len(text)
