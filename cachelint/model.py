"""The typed result of a run: what the engine produces and every report, fix and cache entry consumes.

Lines and columns are 1-based, as editors and CI annotations count them. ``path`` is relative to the
working directory, with forward slashes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self


class FieldClass(StrEnum):
    """What the contract asks of a cached field."""

    SAFE = "SAFE"
    RECOMPUTE = "RECOMPUTE"
    SAVE = "SAVE"


class Storage(StrEnum):
    """Where the value of a field lives."""

    HOST = "host"
    DEVICE = "device"
    MAYBE = "maybe"
    UNKNOWN = "unknown"


class Origin(StrEnum):
    """How the value of a field came to be."""

    INPUT = "input"
    OUTPUT = "output"
    INTERMEDIATE = "intermediate"
    RANDOM = "random"
    PERSISTENT = "persistent"
    HANDLE = "handle"
    HOST = "host"


class Confidence(StrEnum):
    """How far the evidence carries."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Applicability(StrEnum):
    """Whether a fix keeps outputs, derivatives and public attributes the same."""

    SAFE = "safe"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One link of the chain behind a verdict: a place and what it shows."""

    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class FieldReport:
    """One cached field of one type, with its verdict."""

    field: str
    line: int
    column: int
    end_line: int
    end_column: int
    cls: FieldClass
    storage: Storage
    origin: Origin
    registered: bool
    read: bool
    persistent: bool
    rule: str | None
    confidence: Confidence
    reason: str
    resolution: str
    evidence: tuple[Evidence, ...] = ()

    @property
    def flagged(self) -> bool:
        """A finding: RECOMPUTE or SAVE, read in backward and not registered."""
        return self.cls is not FieldClass.SAFE and self.read and not self.registered


@dataclass(frozen=True, slots=True)
class TypeReport:
    """One class (or pair of functions) with a forward and a backward.

    ``row`` is the Class column of the audit: the join of the fields' classes, then the children that save.
    """

    path: str
    line: int
    type: str
    dialect: str
    row: str
    fields: tuple[FieldReport, ...] = ()


@dataclass(frozen=True, slots=True)
class FixNote:
    """What a codemod would do for a finding."""

    applicability: Applicability
    description: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation of one rule at one place."""

    code: str
    name: str
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    message: str
    type: str | None = None
    field: str | None = None
    cls: FieldClass | None = None
    fix: FixNote | None = None
    names: tuple[str, ...] = ()

    @property
    def sort_key(self) -> tuple[str, int, int, str]:
        """Findings are shown by place, then code."""
        return (self.path, self.line, self.column, self.code)


@dataclass(frozen=True, slots=True)
class FileError:
    """A file that could not be read or parsed, or a configuration that cannot hold for it."""

    path: str
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class FileResult:
    """Everything that one file yields. ``deps`` are the absolute paths of the other files that its verdicts used;
    ``missing`` those that resolution looked for and did not find (a verdict can change when one appears)."""

    path: str
    types: tuple[TypeReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    errors: tuple[FileError, ...] = ()
    deps: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form that :meth:`from_dict` reads back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Rebuild a result from :meth:`to_dict`. Raises KeyError, TypeError or ValueError on foreign data."""
        return cls(
            path=data["path"],
            types=tuple(_type_from(t) for t in data["types"]),
            findings=tuple(_finding_from(f) for f in data["findings"]),
            errors=tuple(FileError(**e) for e in data["errors"]),
            deps=tuple(data["deps"]),
            missing=tuple(data["missing"]),
        )


def _field_from(data: dict[str, Any]) -> FieldReport:
    return FieldReport(
        **{
            **data,
            "cls": FieldClass(data["cls"]),
            "storage": Storage(data["storage"]),
            "origin": Origin(data["origin"]),
            "confidence": Confidence(data["confidence"]),
            "evidence": tuple(Evidence(**e) for e in data["evidence"]),
        }
    )


def _type_from(data: dict[str, Any]) -> TypeReport:
    return TypeReport(**{**data, "fields": tuple(_field_from(f) for f in data["fields"])})


def _finding_from(data: dict[str, Any]) -> Finding:
    fix = data["fix"]
    return Finding(
        **{
            **data,
            "cls": FieldClass(data["cls"]) if data["cls"] else None,
            "fix": FixNote(Applicability(fix["applicability"]), fix["description"]) if fix else None,
            "names": tuple(data["names"]),
        }
    )
