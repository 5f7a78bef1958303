"""Each finding with its source, carets, why it holds here and what to do about it. For people."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.report import Report, Style
from cachelint.report.advice import Adviser
from cachelint.report.check.concise import headline
from cachelint.report.excerpt import Span, excerpt
from cachelint.report.place import lines_around
from cachelint.report.text import paint, printable


def render(report: Report, style: Style) -> Iterator[str]:
    """One block a finding, with a blank line between blocks."""
    adviser = Adviser(report.types_with_findings)
    for finding in report.findings:
        yield headline(finding, report, style) + "\n"
        span = Span(finding.line, finding.column, finding.end_line, finding.end_column)
        lines, span = lines_around(report, finding.path, span)
        gutter = len(str(span.end_line + 2))
        for line in excerpt(lines, span, colour=style.colour, gutter=gutter):
            yield line + "\n"
        advice = adviser.advice(finding)
        for label, text in (("why", advice.why), ("do", advice.todo)):
            if text:
                yield _note(gutter, label, text, style)
        if finding.fix:
            how = "cachelint fix" if finding.fix.applicability == "safe" else "cachelint fix --unsafe"
            text = f"{finding.fix.applicability}, `{how}`"
            yield _note(
                gutter,
                "fix",
                text if finding.fix.description == advice.todo else f"{text}: {finding.fix.description}",
                style,
            )
        yield "\n"


def _note(gutter: int, label: str, text: str, style: Style) -> str:
    mark = paint("=", "blue", on=style.colour)
    return f"{' ' * gutter} {mark} {paint(label + ':', 'bold', on=style.colour)} {printable(text)}\n"
