"""The engine: one file in, its types and findings out. Pure apart from the project's reads."""

from __future__ import annotations

import re
from functools import lru_cache

from cachelint.checks import FileContext, TypeContext, run_file, run_type
from cachelint.classify import relative, type_report
from cachelint.collect.types import find
from cachelint.composite import Composites
from cachelint.dialects import shipped
from cachelint.index.module import ModuleInfo
from cachelint.index.project import Project
from cachelint.infer.analysis import analyse
from cachelint.model import FileError, FileResult, Finding
from cachelint.settings import Settings


@lru_cache(maxsize=8)
def _words(settings: Settings) -> tuple[bytes, ...]:
    words = {"backward", "register_autograd", "vjp", "jvp"}
    for spec in (*settings.dialects, *shipped()):
        words.update(spec.backward)
        words.update(d.rpartition(".")[2] for d in spec.decorators)
    short = sorted(words, key=len)
    kept: list[str] = []
    for word in short:
        if not any(k in word for k in kept):
            kept.append(word)
    return tuple(word.encode() for word in kept)


_FORWARD = re.compile(rb"def\s+forward\b")


def wants(raw: bytes, settings: Settings) -> bool:
    """Whether a file may hold a type or a finding, by its bytes alone; never False for one that does."""
    if any(word in raw for word in _words(settings)):
        return True
    # A class with a forward may inherit its backward, and a forward alone may keep temporaries alive.
    return b"def forward" in raw or (b"forward" in raw and _FORWARD.search(raw) is not None)


def examine(module: ModuleInfo, shown: str, project: Project, settings: Settings) -> tuple[FileContext, list[Finding]]:
    """The interpreted types of a module, and what the rules find in them. Raises SyntaxError."""
    findings: list[Finding] = []
    contexts: list[TypeContext] = []
    composites = Composites(project, settings)
    for unit in find(module, project, settings):
        analysis = analyse(unit, project)
        report = type_report(analysis, settings, composites.saves(analysis))
        context = TypeContext(analysis, report, project, settings, composites)
        contexts.append(context)
        findings.extend(run_type(context))
    file = FileContext(module, shown, tuple(contexts), project, settings)
    findings.extend(run_file(file))
    return file, findings


def _once(findings: list[Finding]) -> list[Finding]:
    """Without those that say the same of the same place, of a method that several types share."""
    seen: set[tuple[str, int, int, str]] = set()
    kept = []
    for finding in findings:
        key = (finding.code, finding.line, finding.column, finding.message)
        if key not in seen or finding.field is not None:
            kept.append(finding)
        seen.add(key)
    return kept


def analyze(path: str, project: Project, settings: Settings) -> FileResult:
    """Every type and finding of one file. A file that does not parse gives one error and nothing else."""
    shown = relative(path)
    project.used.clear()
    project.missed.clear()
    module = project.module(path)
    if module is None:
        return FileResult(shown, errors=(FileError(shown, 1, "cannot be read"),))
    try:
        file, findings = examine(module, shown, project, settings)
        if findings:
            from cachelint.fix.notes import annotate

            findings = annotate(file, findings)
    except SyntaxError as error:
        message = f"cannot be parsed: {error.msg}"
        return FileResult(shown, errors=(FileError(shown, error.lineno or 1, message),))
    deps = tuple(sorted(project.used - {path}))
    findings.sort(key=lambda finding: finding.sort_key)
    findings = _once(findings)
    types = tuple(context.report for context in file.types)
    return FileResult(shown, types, tuple(findings), (), deps, tuple(sorted(project.missed)))
