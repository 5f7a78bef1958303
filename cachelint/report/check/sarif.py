"""SARIF 2.1.0, for code scanning services. Rule help comes from the catalogue.

Shape: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0", sections 3.13 to 3.58.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from cachelint import __version__, catalogue
from cachelint.model import FileError, Finding
from cachelint.report import Report, Style
from cachelint.report.advice import Adviser
from cachelint.report.rulepage import markdown, plain

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render(report: Report, style: Style) -> Iterator[str]:
    """The whole log with one run. Only rules that have a result are described."""
    adviser = Adviser(report.types_with_findings)
    codes = sorted({finding.code for finding in report.findings})
    described = {finding.code: _rule(finding, adviser) for finding in report.findings}
    run = {
        "tool": {
            "driver": {
                "name": "cachelint",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [described[code] for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not report.errors,
                "toolExecutionNotifications": [_notification(error) for error in report.errors],
            }
        ],
        "results": [_result(finding, codes.index(finding.code), adviser) for finding in report.findings],
    }
    yield json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _rule(finding: Finding, adviser: Adviser) -> dict[str, Any]:
    rule = adviser.rule(finding.code)
    shape: dict[str, Any] = {
        "id": finding.code,
        "name": "".join(part.capitalize() for part in finding.name.split("-")),
        "shortDescription": {"text": rule.summary if rule else finding.name},
        "defaultConfiguration": {"level": _LEVELS[adviser.severity(finding.code)]},
    }
    if rule:
        shape["fullDescription"] = {"text": " ".join(rule.section("What it finds").split())}
        shape["help"] = {"text": plain(rule), "markdown": markdown(rule)}
        shape["properties"] = _properties(rule)
    return shape


def _properties(rule: catalogue.Rule) -> dict[str, Any]:
    return {"tags": ["correctness", "pytorch", *rule.dialects], "fixable": rule.fixable, "kebabName": rule.name}


def _result(finding: Finding, index: int, adviser: Adviser) -> dict[str, Any]:
    advice = adviser.advice(finding)
    field = adviser.verdict(finding)
    text = finding.message
    for part in (advice.why, advice.todo):
        text += f"\n{part}" if part else ""
    key = "\0".join((finding.path, finding.code, finding.type or "", finding.field or finding.message, *finding.names))
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": _LEVELS[adviser.severity(finding.code)],
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": _artifact(finding.path),
                    "region": {
                        "startLine": finding.line,
                        "startColumn": finding.column,
                        "endLine": finding.end_line,
                        "endColumn": finding.end_column,
                    },
                },
                **(
                    {"logicalLocations": [{"fullyQualifiedName": finding.type, "kind": "type"}]} if finding.type else {}
                ),
            }
        ],
        "relatedLocations": [
            {"id": number, "message": {"text": link.text}, "physicalLocation": _place(link.path, link.line)}
            for number, link in enumerate(field.evidence if field else (), start=1)
        ],
        "partialFingerprints": {"cachelint/v1": hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()},
        "properties": {
            "type": finding.type,
            "field": finding.field,
            "class": finding.cls.value if finding.cls else None,
            "names": list(finding.names),
        },
    }


def _notification(error: FileError) -> dict[str, Any]:
    location = {"physicalLocation": _place(error.path, error.line)}
    return {"level": "error", "message": {"text": error.message}, "locations": [location]}


def _place(path: str, line: int) -> dict[str, Any]:
    return {"artifactLocation": _artifact(path), "region": {"startLine": max(1, line)}}


def _artifact(path: str) -> dict[str, Any]:
    """A relative URI, resolved by the reader against the root of the sources."""
    if path.startswith("/"):
        return {"uri": "file://" + quote(path, errors="surrogateescape")}
    return {"uri": quote(path, errors="surrogateescape"), "uriBaseId": "%SRCROOT%"}
