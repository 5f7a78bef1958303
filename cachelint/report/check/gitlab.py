"""GitLab's Code Quality report: a JSON array; a fingerprint survives changes elsewhere in the file."""

from __future__ import annotations

import collections
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from cachelint.report import Report, Style
from cachelint.report.advice import Adviser

_SEVERITIES = {"error": "critical", "warning": "major", "info": "minor"}


def render(report: Report, style: Style) -> Iterator[str]:
    """The whole array; a file that could not be read is a blocker."""
    adviser = Adviser(report.types_with_findings)
    seen: collections.Counter[tuple[str, ...]] = collections.Counter()
    issues: list[dict[str, Any]] = []
    for finding in report.findings:
        # No line in the fingerprint: an edit above must not make an old finding new.
        key = (finding.path, finding.code, finding.type or "", finding.field or "", *finding.names)
        if finding.field is None and not finding.names:
            key = (*key, finding.message)
        issues.append(
            {
                "type": "issue",
                "description": f"{finding.code} {finding.message}",
                "check_name": finding.name,
                "fingerprint": _fingerprint(key, seen[key]),
                "severity": _SEVERITIES[adviser.severity(finding.code)],
                "location": {
                    "path": finding.path,
                    "positions": {
                        "begin": {"line": finding.line, "column": finding.column},
                        "end": {"line": finding.end_line, "column": finding.end_column},
                    },
                },
            }
        )
        seen[key] += 1
    for error in report.errors:
        key = (error.path, "unreadable-file", error.message)
        issues.append(
            {
                "type": "issue",
                "description": error.message,
                "check_name": "unreadable-file",
                "fingerprint": _fingerprint(key, seen[key]),
                "severity": "blocker",
                "location": {"path": error.path, "lines": {"begin": max(1, error.line)}},
            }
        )
        seen[key] += 1
    yield json.dumps(issues, indent=2, ensure_ascii=False) + "\n"


def _fingerprint(key: tuple[str, ...], occurrence: int) -> str:
    return hashlib.sha256("\0".join((*key, str(occurrence))).encode("utf-8", "surrogateescape")).hexdigest()[:40]
