"""The lifetime fix in memory, and what the lifetime rules say of the files that a target runs.

A fixer is a function from source text and path to source text. The shipped one applies the codemods of CL301 and CL302;
another can be named on the command line. Nothing is written to disk.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from cachelint.index.project import Project
from cachelint.runtime.measure import Owners
from cachelint.runtime.poison_holders import objects
from cachelint.runtime.sites import short
from cachelint.runtime.target import Target, TargetError, describe
from cachelint.runtime.target_load import load
from cachelint.settings import Settings

Fixer = Callable[[str, str], str]
CODES = ("CL301", "CL302")
_SETTINGS = Settings(select=CODES)


def fixer_named(text: str) -> Fixer:
    """The fixer ``MODULE:FUNCTION``. Raises TargetError."""
    found = load(text).value
    if not callable(found):
        raise TargetError(f"{text}: a fixer is a function (source, path) -> source")
    return found  # type: ignore[no-any-return]


def shipped_fixer() -> Fixer:
    """The codemods of the lifetime rules, safe ones only. Raises TargetError where this build has none."""
    from cachelint.fix.apply import fix_text
    from cachelint.fix.remedies import fixable_codes
    from cachelint.source import decode

    if not fixable_codes() & set(CODES):
        raise TargetError("this build has no lifetime fix; name one with --fixer MODULE:FUNCTION")

    def fix(source: str, path: str) -> str:
        decoded = decode(source.encode("utf-8"), short(path), path)
        found = fix_text(decoded, _project([path]), _SETTINGS, wanted=lambda finding: finding.code in CODES)
        return found.text

    return fix


def files_of(target: Target, value: object) -> tuple[str, ...]:
    """The project's files behind ``target``: its own, those that loading it brought in, those of its objects."""
    modules = {target.module.__name__, *target.imported}
    modules.update(type(each).__module__ for _, each in objects(value))
    found = []
    for name in sorted(modules):
        path = getattr(
            sys.modules.get(name, target.module if name == target.module.__name__ else None), "__file__", None
        )
        if path and path.endswith(".py") and "site-packages" not in path and not path.startswith(sys.base_prefix):
            found.append(str(Path(path).resolve()))
    return tuple(dict.fromkeys(found))


def fixed(target: Target, files: Iterable[str], fixer: Fixer) -> Target:
    """``target`` with the fixer applied to ``files`` in memory.

    Raises:
        TargetError: the fixer raises, changes nothing, or gives what can't be imported.
    """
    rewritten = {}
    for path in files:
        source = Path(path).read_text(encoding="utf-8")
        try:
            changed = fixer(source, path)
        except Exception as error:  # a fixer may be the user's
            raise TargetError(f"{short(path)}: the fixer raised {describe(error)}") from error
        if changed != source:
            rewritten[path] = changed
    if not rewritten:
        raise TargetError(f"{target.label}: the lifetime fix changes nothing in {', '.join(map(short, files))}")
    again = load(target.label, rewritten, target.imported)
    return Target(f"{target.label} (fixed)", again.module, again.name, again.imported)


def flagged(files: Iterable[str]) -> tuple[Owners, ...]:
    """What CL301 and CL302 flag in ``files``."""
    from cachelint.engine import analyze

    paths = list(files)
    project = _project(paths)
    findings = [each for path in paths for each in analyze(path, project, _SETTINGS).findings if each.code in CODES]
    return tuple(
        Owners(_function_at(finding.path, finding.line), finding.names, finding.path, finding.line, finding.code)
        for finding in findings
        if finding.names
    )


def _project(paths: list[str]) -> Project:
    return Project(os.getcwd(), paths, _text)


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _function_at(path: str, line: int) -> str:
    """The qualified name of the innermost function that holds ``line``."""
    best = ("", 0)
    pending: list[tuple[ast.AST, str]] = [(ast.parse(Path(path).read_text(encoding="utf-8")), "")]
    while pending:
        node, prefix = pending.pop()
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}".removeprefix(".")
                if not isinstance(child, ast.ClassDef):
                    if child.lineno <= line <= (child.end_lineno or child.lineno) and child.lineno >= best[1]:
                        best = (name, child.lineno)
                    name += ".<locals>"
            pending.append((child, name))
    return best[0]


def owners_named(text: str) -> Owners:
    """``FUNCTION:name,name`` as typed on the command line, FUNCTION the qualified name. Raises TargetError."""
    function, colon, names = text.rpartition(":")
    parts = tuple(name.strip() for name in names.split(","))
    if not (colon and function and all(part.isidentifier() for part in parts)):
        raise TargetError(f"{text!r}: give owners as FUNCTION:name,name, such as Layer.forward:qkv,z")
    return Owners(function.rpartition(":")[2], parts)
