"""A small engine for tests of the runner: its verdicts depend on a helper module and on the callers in the project.

A class with a backward is a type. Its message names the limit that ``helper.py`` beside it sets, and the files that
call its ``apply``. Words in a comment make it misbehave: CRASH, RECURSE, HANG, SLEEP, RAISE, MEMORY.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import time
from collections.abc import Callable

from cachelint.examine import Engine
from cachelint.model import (
    Confidence,
    Evidence,
    FieldClass,
    FieldReport,
    FileError,
    FileResult,
    Finding,
    Origin,
    Storage,
    TypeReport,
)
from cachelint.settings import Settings

Text = Callable[[str], str | None]
Raw = Callable[[str], bytes | None]


class Project:
    """What the stub looks names up in."""

    def __init__(self, root: str, files: list[str], text: Text, raw: Raw) -> None:
        self.root, self.files, self.text, self.raw = root, files, text, raw

    def callers(self, name: str) -> list[str]:
        return [path for path in self.files if f"{name}.apply(".encode() in (self.raw(path) or b"")]


def wants(raw: bytes, settings: Settings) -> bool:
    return b"backward" in raw


def parse(text: str, path: str) -> ast.Module:
    return ast.parse(text)


def analyze(path: str, project: Project, settings: Settings) -> FileResult:
    text = project.text(path)
    if text is None:
        return FileResult(path, errors=(FileError(path, 1, "cannot be read"),))
    _misbehave(text)
    try:
        tree = parse(text, path)
    except SyntaxError as error:
        return FileResult(path, errors=(FileError(path, error.lineno or 1, f"cannot be parsed: {error.msg}"),))
    deps: set[str] = set()
    missing: set[str] = set()
    limit = "none"
    if "import helper" in text:
        helper = os.path.join(os.path.dirname(path), "helper.py")
        if helper in project.files:
            deps.add(helper)
            found = re.search(r"LIMIT = (\d+)", project.text(helper) or "")
            limit = found[1] if found else "unset"
        else:
            missing.add(helper)
    types, findings = [], []
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or not any(getattr(one, "name", "") == "backward" for one in node.body):
            continue
        callers = project.callers(node.name)
        deps.update(callers)
        reason = (
            f"limit {limit}, called in {sorted(os.path.basename(one) for one in callers)}, {settings.unknown_storage}"
        )
        types.append(TypeReport(path, node.lineno, node.name, "stub", "SAVE", (_field(path, node.lineno, reason),)))
        line = node.lineno
        findings.append(Finding("CL103", "cached-intermediate", path, line, 1, line, 6, reason, node.name, "f"))
        findings.append(Finding("CL215", "double-backward-unguarded", path, line, 1, line, 6, "off", node.name))
    return FileResult(path, tuple(types), tuple(findings), (), tuple(deps - {path}), tuple(missing))


def _field(path: str, line: int, reason: str) -> FieldReport:
    return FieldReport(
        "f", line, 1, line, 6, FieldClass.SAVE, Storage.DEVICE, Origin.INTERMEDIATE, False, True, False, "CL103",
        Confidence.HIGH, reason, "register it", (Evidence(path, line, "made here"),),
    )  # fmt: skip


def _misbehave(text: str) -> None:
    if "# CRASH" in text:
        os.kill(os.getpid(), signal.SIGKILL)
    if "# RECURSE" in text:
        _recurse(0)
    if "# HANG" in text:
        while True:
            pass
    if "# SLEEP" in text:
        time.sleep(0.05)
    if "# RAISE" in text:
        raise ValueError("two\nlines")
    if "# MEMORY" in text:
        raise MemoryError


def _recurse(depth: int) -> int:
    return _recurse(depth + 1) + 1


def warm(project: Project) -> None:
    """Nothing to compute beforehand."""


def bases(project: Project, names: frozenset[str]) -> frozenset[str]:
    return frozenset()


ENGINE = Engine(wants, Project, analyze, parse, warm, bases, name="stub")
