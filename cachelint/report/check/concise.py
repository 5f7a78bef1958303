"""One line a finding: ``path:line:column: CODE message``. Editors and ``grep`` read it."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.model import Applicability, Finding
from cachelint.report import Report, Style
from cachelint.report.place import line_of
from cachelint.report.text import paint, printable


def headline(finding: Finding, report: Report, style: Style) -> str:
    """The line of one finding; ``[*]`` marks a safe fix."""
    colon = paint(":", "cyan", on=style.colour)
    path = paint(printable(finding.path), "bold", on=style.colour)
    line = line_of(report, finding.path, finding.line).replace(":", colon)
    return f"{path}{colon}{line}{colon}{finding.column}{colon} {tail(finding, style)}"


def tail(finding: Finding, style: Style) -> str:
    """Code, fix mark and message."""
    safe = finding.fix is not None and finding.fix.applicability is Applicability.SAFE
    mark = f" [{paint('*', 'cyan', on=style.colour)}]" if safe else ""
    return f"{paint(finding.code, 'red', 'bold', on=style.colour)}{mark} {printable(finding.message)}"


def render(report: Report, style: Style) -> Iterator[str]:
    """One line a finding."""
    for finding in report.findings:
        yield headline(finding, report, style) + "\n"
