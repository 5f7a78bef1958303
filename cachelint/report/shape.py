"""The JSON shapes of findings, fields and errors: keys that other programs rely on, in one place.

More keys may follow; none of these changes its name or its meaning.
"""

from __future__ import annotations

from typing import Any

from cachelint import __version__
from cachelint.model import FieldReport, FileError, Finding, TypeReport

SCHEMA = 1


def tool() -> dict[str, Any]:
    """Which program wrote the report."""
    return {"name": "cachelint", "version": __version__}


def finding(item: Finding, cell: tuple[int, int] | None = None) -> dict[str, Any]:
    """One finding of ``check``; ``cell`` is its place in a notebook, whose lines are those of its cells together."""
    shape: dict[str, Any] = {
        "code": item.code,
        "name": item.name,
        "path": item.path,
        "line": item.line,
        "column": item.column,
        "end_line": item.end_line,
        "end_column": item.end_column,
        "message": item.message,
        "type": item.type,
        "field": item.field,
        "class": item.cls.value if item.cls else None,
        "fix": {"applicability": item.fix.applicability.value, "description": item.fix.description}
        if item.fix
        else None,
    }
    if item.code.startswith("CL3") or item.names:
        shape["names"] = list(item.names)
    if cell:
        shape["cell"] = {"number": cell[0], "line": cell[1]}
    return shape


def error(item: FileError) -> dict[str, Any]:
    """A file that could not be read or parsed."""
    return {"path": item.path, "line": item.line, "message": item.message}


def field(item: FieldReport) -> dict[str, Any]:
    """One cached field of ``audit``."""
    return {
        "field": item.field,
        "line": item.line,
        "column": item.column,
        "class": item.cls.value,
        "storage": item.storage.value,
        "origin": item.origin.value,
        "registered": item.registered,
        "read": item.read,
        "persistent": item.persistent,
        "rule": item.rule,
        "confidence": item.confidence.value,
        "reason": item.reason,
        "evidence": [{"path": link.path, "line": link.line, "text": link.text} for link in item.evidence],
        "end_line": item.end_line,
        "end_column": item.end_column,
        "resolution": item.resolution,
    }


def kind(item: TypeReport) -> dict[str, Any]:
    """One type of ``audit``, with all of its fields; ``class`` is its row."""
    return {
        "path": item.path,
        "line": item.line,
        "type": item.type,
        "dialect": item.dialect,
        "class": item.row,
        "fields": [field(each) for each in item.fields],
    }
