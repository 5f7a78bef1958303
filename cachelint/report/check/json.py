"""One JSON document: ``{"schema", "findings", "errors"}``."""

from __future__ import annotations

import json
from collections.abc import Iterator

from cachelint.report import Report, Style, shape


def render(report: Report, style: Style) -> Iterator[str]:
    """The whole document, indented."""
    document = {
        "schema": shape.SCHEMA,
        "tool": shape.tool(),
        "findings": [shape.finding(finding, report.cell(finding.path, finding.line)) for finding in report.findings],
        "errors": [shape.error(error) for error in report.errors],
    }
    yield json.dumps(document, indent=2, ensure_ascii=False) + "\n"
