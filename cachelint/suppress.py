"""Suppression comments.

Three forms: ``# noqa`` and ``# noqa: CL103`` as everywhere, ``# cachelint: ignore[CL103] reason`` with codes, prefixes
or names of rules, and ``# cachelint: file-ignore[CL103]`` for a whole file. A comment counts on the line of the
finding and on the first or last line of the statement around it; an ``ignore`` alone on its line counts for the
statement below. What suppresses nothing is CL001, unless it is a bare ``# noqa`` or names other tools' codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cachelint.model import Applicability, Finding, FixNote
from cachelint.scan import Comment, Scan, Statement, scan
from cachelint.select import BUILT_IN, UNUSED_SUPPRESSION, matches
from cachelint.source import Source

_NOQA = re.compile(
    r"#\s*noqa(?![\w-])(?P<colon>\s*:\s*(?P<codes>[A-Z]+[0-9]*(?:[\s,]+[A-Z]+[0-9]+)*)?)?", re.IGNORECASE
)
_OURS = re.compile(
    r"#\s*cachelint:\s*(?P<kind>file-ignore|ignore)(?![\w-])(?P<bracket>\s*\[(?P<codes>[^\]]*)\])?", re.IGNORECASE
)
_SPLIT = re.compile(r"[\s,]+")
_NAMED = re.compile(rb"noqa[^\r\n]*\bcl\d")
_OUR_CODE = re.compile(r"CL\d*\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Directive:
    """One suppression comment. ``codes`` as written; empty means every rule. ``offset`` and ``length`` are the span of
    its own part of the comment. ``lines`` are the lines it covers, ``None`` for the whole file.
    """

    kind: str
    line: int
    column: int
    offset: int
    length: int
    codes: tuple[str, ...]
    lines: frozenset[int] | None
    statement: Statement | None = None

    def covers(self, finding: Finding, statement: Statement | None) -> bool:
        """Whether the comment stands where it may silence the finding."""
        if self.lines is None:
            return True
        if finding.line in self.lines or statement is None:
            return finding.line in self.lines
        ends_within = finding.end_line in self.lines and finding.end_line <= statement.last
        return ends_within or statement == self.statement


@dataclass(frozen=True, slots=True)
class Outcome:
    """What suppression leaves: ``kept`` findings (with CL001 for each comment that did nothing) and ``suppressed``."""

    kept: tuple[Finding, ...]
    suppressed: tuple[Finding, ...]


def mentions(raw: bytes, bare: bool = False) -> bool:
    """Whether a file may hold a suppression comment; without ``bare``, one that can be reported as unused."""
    lower = raw.lower()
    if b"cachelint" in lower:
        return True
    return b"noqa" in lower and (bare or _NAMED.search(lower) is not None)


def directives(text: str, found: Scan | None = None) -> tuple[Directive, ...]:
    """The suppression comments of a text. A string that looks like one is not one."""
    found = found or scan(text)
    result: list[Directive] = []
    for comment in found.comments:
        body = comment.text
        if "noqa" not in body.lower() and "cachelint" not in body.lower():
            continue
        for match in _OURS.finditer(body):
            codes = tuple(code for code in _SPLIT.split((match["codes"] or "").strip()) if code)
            if match["bracket"] is None or codes:
                result.append(_directive(match, match["kind"].lower(), codes, comment, text, found))
        for match in _NOQA.finditer(body):
            codes = tuple(code.upper() for code in _SPLIT.split(match["codes"] or "") if code)
            if match["colon"] is None or codes:
                result.append(_directive(match, "noqa", codes, comment, text, found))
    return tuple(result)


def apply(findings: Sequence[Finding], source: Source, unused: bool = True) -> Outcome:
    """Take off what the comments of a file suppress; report the comments that did nothing where ``unused`` is set.

    ``findings`` must be all that the rules found in the file, selected or not: a comment for a rule that is switched
    off is not unused.
    """
    # Most files hold no such comment: a search in the bytes spares them the scan.
    if not (mentions(source.raw, bare=True) if findings else unused and mentions(source.raw)):
        return Outcome(tuple(findings), ())
    text = source.text
    found = scan(text)
    comments = directives(text, found)
    if not comments:
        return Outcome(tuple(findings), ())
    kept: list[Finding] = []
    suppressed: list[Finding] = []
    hits: set[tuple[int, str]] = set()  # (number of the directive, code as written)
    for finding in findings:
        statement = found.statement_at(finding.line)
        silent = False
        for number, directive in enumerate(comments):
            if not directive.covers(finding, statement):
                continue
            named = [code for code in directive.codes if matches(code, finding.code, finding.name)]
            if named or not directive.codes:
                hits.update((number, code) for code in named or [""])
                silent = True
        (suppressed if silent else kept).append(finding)
    if unused:
        for number, directive in enumerate(comments):
            report = _unused(directive, {code for at, code in hits if at == number}, source)
            if report is None:
                continue
            itself = any(
                matches(code, UNUSED_SUPPRESSION, BUILT_IN[UNUSED_SUPPRESSION]) and code.upper() not in ("ALL", "CL")
                for other in comments
                if other.lines is None or directive.line in other.lines
                for code in other.codes
            )
            (suppressed if itself else kept).append(report)
    return Outcome(tuple(sorted(kept, key=lambda one: one.sort_key)), tuple(suppressed))


def add_noqa(source: Source, findings: Iterable[Finding]) -> str:
    """The text with a ``# noqa: CODE`` for every finding, at the end of the statement that it is on.

    Codes join those of a suppression that is there already. CL001 is never silenced this way.
    """
    text = source.text
    found = scan(text)
    existing = directives(text, found)
    wanted: dict[int, list[str]] = {}
    ends: dict[int, Statement] = {}
    for finding in sorted(findings, key=lambda one: one.sort_key):
        statement = found.statement_at(finding.line)
        if finding.code == UNUSED_SUPPRESSION or statement is None:
            continue
        ends[statement.last] = statement
        codes = wanted.setdefault(statement.last, [])
        if finding.code not in codes:
            codes.append(finding.code)
    edits: list[tuple[int, int, str]] = []
    for line, codes in wanted.items():
        own = next((one for one in existing if one.kind == "noqa" and one.line == line), None)
        if own is not None:
            if own.codes:
                new = ", ".join([*own.codes, *(code for code in codes if code not in own.codes)])
                edits.append((own.offset, own.offset + own.length, f"# noqa: {new}"))
            continue
        comment = next((one for one in found.comments if one.line == line), None)
        at = comment.offset + len(comment.text.rstrip()) if comment is not None else ends[line].end
        edits.append((at, at, f"  # noqa: {', '.join(codes)}"))
    return _edited(text, edits)


def drop_unused(source: Source, reports: Iterable[Finding]) -> str:
    """The text without the comments (or the codes in them) that CL001 findings name."""
    text = source.text
    edits: list[tuple[int, int, str]] = []
    useless = {(one.line, one.column): set(one.names) for one in reports if one.code == UNUSED_SUPPRESSION}
    for directive in directives(text):
        names = useless.get((directive.line, directive.column))
        if names is None:
            continue
        start, end = directive.offset, directive.offset + directive.length
        left = [code for code in directive.codes if code not in names]
        if left:
            inside = ", ".join(left)
            new = f"# noqa: {inside}" if directive.kind == "noqa" else f"# cachelint: {directive.kind}[{inside}]"
            edits.append((start, end, new))
            continue
        tail = re.compile(r"[^\r\n#]*").match(text, end)
        end = tail.end() if tail else end  # the reason goes with it
        if end == len(text) or text[end] in "\r\n":
            while start > 0 and text[start - 1] in " \t":
                start -= 1
            if start == 0 or text[start - 1] in "\r\n":  # nothing else on the line: the line goes too
                newline = re.compile(r"\r\n|\r|\n").match(text, end)
                end = newline.end() if newline else end
        edits.append((start, end, ""))
    return _edited(text, edits)


def _directive(
    match: re.Match[str], kind: str, codes: tuple[str, ...], comment: Comment, text: str, found: Scan
) -> Directive:
    offset = comment.offset + match.start()
    line_start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
    directive = Directive(kind, comment.line, offset - line_start + 1, offset, len(match[0]), codes, None)
    if kind == "file-ignore":
        return directive
    lines = frozenset({comment.line})
    if kind == "ignore" and comment.own_line:
        below = found.statement_after(comment.line)
        return replace(directive, lines=lines, statement=below)
    around = found.statement_at(comment.line)
    at_edge = around is not None and comment.line in (around.first, around.last)
    return replace(directive, lines=lines, statement=around if at_edge else None)


def _unused(directive: Directive, hits: set[str], source: Source) -> Finding | None:
    """The CL001 finding for a directive, if some of it did nothing."""
    if directive.kind == "noqa":
        idle = tuple(code for code in directive.codes if _OUR_CODE.match(code) and code not in hits)
    else:
        idle = tuple(code for code in directive.codes if code not in hits)
    idle = tuple(code for code in idle if not matches(code, UNUSED_SUPPRESSION, BUILT_IN[UNUSED_SUPPRESSION]))
    if directive.codes:
        if not idle:
            return None
        words = ", ".join(f"`{code}`" for code in idle)
        message = f"unused suppression: {words} {'matches' if len(idle) == 1 else 'match'} no finding here"
    elif directive.kind == "noqa" or hits:
        return None
    else:
        message = "unused suppression: there is no finding here"
    whole = len(idle) == len(directive.codes)
    return Finding(
        code=UNUSED_SUPPRESSION,
        name=BUILT_IN[UNUSED_SUPPRESSION],
        path=source.path,
        line=directive.line,
        column=directive.column,
        end_line=directive.line,
        end_column=directive.column + directive.length,
        message=message,
        fix=FixNote(Applicability.SAFE, "remove the comment" if whole else "remove the codes that do nothing"),
        names=idle,
    )


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    parts: list[str] = []
    done = 0
    for start, end, new in sorted(edits):
        parts += [text[done:start], new]
        done = end
    return "".join([*parts, text[done:]])
