"""Baselines: the findings that a project has accepted for now, in a JSON file that survives edits around them.

A finding is known by its path (relative to the baseline file), code, type, field and the text of its line, so that it
moves freely within its file. Equal fingerprints are counted.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from cachelint.model import Finding
from cachelint.source import read_bytes, replace_file

SCHEMA = 1

Lines = Callable[[str], Sequence[str]]
"""The lines of a file by the path that its findings have."""


class BaselineError(Exception):
    """A baseline file that is missing, unreadable or not one. Exit status 2."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One accepted finding, ``count`` times. Everything but ``fingerprint`` and ``count`` is for people."""

    fingerprint: str
    path: str
    code: str
    type: str | None
    field: str | None
    count: int = 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """``new`` findings, how many the baseline ``accepted``, and the ``stale`` entries that match nothing any more."""

    new: tuple[Finding, ...]
    accepted: tuple[Finding, ...]
    stale: tuple[Entry, ...]


def load(path: str) -> tuple[Entry, ...]:
    """Read a baseline file. Raises BaselineError."""
    try:
        data = json.loads(read_bytes(path))
    except OSError as error:
        reason = "no such file; --write-baseline makes one" if isinstance(error, FileNotFoundError) else error.strerror
        raise BaselineError(f"{path}: {reason}") from error
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"{path}: not a baseline file: {error}") from error
    try:
        if data["schema"] != SCHEMA:
            raise BaselineError(
                f"{path}: written by another version of cachelint (schema {data['schema']!r}): refresh it"
            )
        return tuple(_entry(item) for item in data["findings"])
    except (KeyError, TypeError) as error:
        raise BaselineError(f"{path}: not a baseline file") from error


def build(findings: Iterable[Finding], folder: str, cwd: str, lines: Lines) -> tuple[Entry, ...]:
    """The entries that accept ``findings``. ``folder`` is where the baseline file lives."""
    counts: Counter[str] = Counter()
    first: dict[str, Entry] = {}
    for finding in findings:
        entry = _of(finding, folder, cwd, lines)
        counts[entry.fingerprint] += 1
        first.setdefault(entry.fingerprint, entry)
    entries = [Entry(e.fingerprint, e.path, e.code, e.type, e.field, counts[e.fingerprint]) for e in first.values()]
    return tuple(sorted(entries, key=lambda e: (e.path, e.code, e.type or "", e.field or "", e.fingerprint)))


def save(path: str, entries: Iterable[Entry]) -> None:
    """Write a baseline file in one step. Raises BaselineError."""
    shapes: list[dict[str, Any]] = [
        {
            "path": e.path,
            "code": e.code,
            "type": e.type,
            "field": e.field,
            "fingerprint": e.fingerprint,
            "count": e.count,
        }
        for e in entries
    ]
    text = json.dumps({"schema": SCHEMA, "tool": "cachelint", "findings": shapes}, indent=1, ensure_ascii=False)
    try:
        replace_file(os.path.realpath(path), (text + "\n").encode("utf-8", "surrogatepass"), mode=0o644)
    except OSError as error:
        raise BaselineError(f"{path}: cannot be written: {error.strerror or error}") from error


def compare(
    findings: Sequence[Finding], entries: Sequence[Entry], folder: str, cwd: str, lines: Lines, examined: Iterable[str]
) -> Comparison:
    """Split findings into new and accepted ones. Entries for files that were not ``examined`` are never stale."""
    left = {entry.fingerprint: entry.count for entry in entries}
    new: list[Finding] = []
    accepted: list[Finding] = []
    for finding in findings:
        fingerprint = _of(finding, folder, cwd, lines).fingerprint
        if left.get(fingerprint, 0) > 0:
            left[fingerprint] -= 1
            accepted.append(finding)
        else:
            new.append(finding)
    seen = {_rebased(path, folder, cwd) for path in examined}
    stale = tuple(
        Entry(e.fingerprint, e.path, e.code, e.type, e.field, left[e.fingerprint])
        for e in entries
        if left[e.fingerprint] > 0 and (e.path in seen or not os.path.exists(os.path.join(folder, e.path)))
    )
    return Comparison(tuple(new), tuple(accepted), stale)


def _of(finding: Finding, folder: str, cwd: str, lines: Lines) -> Entry:
    text = lines(finding.path)
    line = text[finding.line - 1].strip() if 0 < finding.line <= len(text) else ""
    path = _rebased(finding.path, folder, cwd)
    parts = (path, finding.code, finding.type or "", finding.field or "", line)
    digest = blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return Entry(digest, path, finding.code, finding.type, finding.field)


def _rebased(path: str, folder: str, cwd: str) -> str:
    return os.path.relpath(os.path.join(cwd, path), folder).replace(os.sep, "/")


def _entry(item: dict[str, Any]) -> Entry:
    entry = Entry(item["fingerprint"], item["path"], item["code"], item["type"], item["field"], item.get("count", 1))
    if not isinstance(entry.fingerprint, str) or not isinstance(entry.path, str) or not isinstance(entry.count, int):
        raise TypeError
    return entry
