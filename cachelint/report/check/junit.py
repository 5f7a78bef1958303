"""JUnit XML: a test suite a file, a failed case a finding; one passed case when there is nothing to say."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from cachelint.model import FileError, Finding
from cachelint.report import Report, Style
from cachelint.report.advice import Adviser

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write (section 2.2 of the recommendation)."""


def render(report: Report, style: Style) -> Iterator[str]:
    """The whole document, suite by suite."""
    adviser = Adviser(report.types_with_findings)
    suites: dict[str, list[Finding | FileError]] = collections.defaultdict(list)
    for finding in report.findings:
        suites[finding.path].append(finding)
    for error in report.errors:
        suites[error.path].append(error)
    failures, errors = len(report.findings), len(report.errors)
    yield '<?xml version="1.0" encoding="utf-8"?>\n'
    yield f'<testsuites name="cachelint" tests="{failures + errors or 1}" failures="{failures}" errors="{errors}">\n'
    if not suites:
        yield '  <testsuite name="cachelint" tests="1" failures="0" errors="0">\n'
        yield '    <testcase name="no findings" classname="cachelint"/>\n'
        yield "  </testsuite>\n"
    for path, items in suites.items():
        bad = sum(isinstance(item, FileError) for item in items)
        counts = f'tests="{len(items)}" failures="{len(items) - bad}" errors="{bad}"'
        yield f"  <testsuite name={_attribute(path)} {counts}>\n"
        for item in items:
            yield from _error(item) if isinstance(item, FileError) else _failure(item, adviser)
        yield "  </testsuite>\n"
    yield "</testsuites>\n"


def _failure(finding: Finding, adviser: Adviser) -> Iterator[str]:
    advice = adviser.advice(finding)
    owner = ".".join(part for part in (finding.type, finding.field) if part)
    name = f"{finding.code} {owner or finding.name} (line {finding.line})"
    body = [f"{finding.path}:{finding.line}:{finding.column}: {finding.code} {finding.message}"]
    body += [f"{label}: {text}" for label, text in (("why", advice.why), ("do", advice.todo)) if text]
    yield f'    <testcase name={_attribute(name)} classname={_attribute(finding.path)} line="{finding.line}">\n'
    yield f"      <failure type={_attribute(finding.code)} message={_attribute(finding.message)}>"
    yield escape(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", "\n".join(body)))
    yield "</failure>\n    </testcase>\n"


def _error(error: FileError) -> Iterator[str]:
    yield f'    <testcase name="unreadable file" classname={_attribute(error.path)} line="{error.line}">\n'
    yield f'      <error type="unreadable-file" message={_attribute(error.message)}/>\n    </testcase>\n'


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))
