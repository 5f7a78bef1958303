"""A Markdown table of findings, for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.report import Report, Style
from cachelint.report.markdown import cell, link, table


def render(report: Report, style: Style) -> Iterator[str]:
    """The table, or a sentence when there is nothing to show; then the errors as a list."""
    if report.findings:
        rows = [
            (
                f"{finding.code} {finding.name}",
                link(f"{finding.path}:{finding.line}", finding.path, finding.line),
                cell(finding.message),
                f"{finding.fix.applicability}" if finding.fix else "",
            )
            for finding in report.findings
        ]
        yield from table(("Rule", "Where", "Finding", "Fix"), rows)
    else:
        yield "No findings.\n"
    if report.errors:
        yield "\nNot read:\n\n"
        for error in report.errors:
            yield f"- {link(f'{error.path}:{error.line}', error.path, error.line)}: {cell(error.message)}\n"
