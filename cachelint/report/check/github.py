"""GitHub Actions workflow commands: annotations on the lines of a pull request.

Escapes: docs.github.com, "Workflow commands for GitHub Actions"; ``%``, CR and LF everywhere, ``:`` and ``,`` in
properties too.
"""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.report import Report, Style
from cachelint.report.advice import Adviser

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def render(report: Report, style: Style) -> Iterator[str]:
    """One command a finding, then one an error."""
    adviser = Adviser(report.types_with_findings)
    for finding in report.findings:
        properties: dict[str, str | int] = {
            "title": f"cachelint ({finding.code})",
            "file": finding.path,
            "line": finding.line,
            "col": finding.column,
            "endLine": finding.end_line,
            "endColumn": finding.end_column,
        }
        if finding.end_line != finding.line:
            # GitHub refuses columns on an annotation of several lines.
            del properties["col"], properties["endColumn"]
        message = f"{finding.path}:{finding.line}:{finding.column}: {finding.code} {finding.message}"
        yield _command(_COMMANDS[adviser.severity(finding.code)], properties, message)
    for error in report.errors:
        place: dict[str, str | int] = {"title": "cachelint", "file": error.path, "line": max(1, error.line)}
        yield _command("error", place, f"{error.path}:{error.line}: {error.message}")


def _command(command: str, properties: dict[str, str | int], message: str) -> str:
    listed = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items())
    return f"::{command} {listed}::{_data(message)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
