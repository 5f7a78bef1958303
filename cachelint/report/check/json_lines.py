"""One JSON object a line: the findings, then the errors (``code`` is null, ``name`` is ``unreadable-file``)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from cachelint.report import Report, Style, shape


def render(report: Report, style: Style) -> Iterator[str]:
    """One object a line, each written as soon as it is known."""
    for finding in report.findings:
        yield json.dumps(shape.finding(finding, report.cell(finding.path, finding.line)), ensure_ascii=False) + "\n"
    for error in report.errors:
        yield json.dumps({"code": None, "name": "unreadable-file", **shape.error(error)}, ensure_ascii=False) + "\n"
