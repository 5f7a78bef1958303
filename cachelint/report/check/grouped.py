"""Findings under the name of their file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from cachelint.report import Report, Style
from cachelint.report.check.concise import tail
from cachelint.report.place import line_of
from cachelint.report.text import paint, printable


def render(report: Report, style: Style) -> Iterator[str]:
    """A heading a file, then its findings, indented, and a blank line."""
    for path, group in itertools.groupby(report.findings, key=lambda finding: finding.path):
        findings = list(group)
        yield paint(printable(path), "bold", on=style.colour) + ":\n"
        places = [f"{line_of(report, path, finding.line)}:{finding.column}" for finding in findings]
        widest = max(map(len, places))
        for place, finding in zip(places, findings, strict=True):
            yield f"  {place:<{widest}}  {tail(finding, style)}\n"
        yield "\n"
