"""The lifetime fix in memory, and what the lifetime rules say of the files that a target runs.

A fixer is a function from source text and path to source text. The shipped one applies the codemods of CL301 and CL302;
another can be named on the command line. Nothing is written to disk.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cachelint.runtime.measure import Owners
from cachelint.runtime.poison_holders import objects
from cachelint.runtime.sites import short
from cachelint.runtime.target import Target, TargetError, describe
from cachelint.runtime.target_load import load

Fixer = Callable[[str, str], str]
CODES = ("CL301", "CL302")


def fixer_named(text: str) -> Fixer:
    """The fixer ``MODULE:FUNCTION``. Raises TargetError."""
    found = load(text).value
    if not callable(found):
        raise TargetError(f"{text}: a fixer is a function (source, path) -> source")
    return found  # type: ignore[no-any-return]


def shipped_fixer() -> Fixer:
    """The codemods of the lifetime rules. Raises TargetError where this build has none."""
    try:
        found: Fixer = importlib.import_module("cachelint.fix.lifetime").fix_source
    except (ImportError, AttributeError) as error:
        raise TargetError("this build has no lifetime fix; name one with --fixer MODULE:FUNCTION") from error
    return found


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


def flagged(files: Iterable[str]) -> tuple[tuple[Owners, ...], str]:
    """What CL301 and CL302 flag in ``files``, and a note: empty, or why the rules could not be asked."""
    try:
        findings = list(_lint(files))
    except ImportError as error:
        return (), f"the lifetime rules are not part of this build ({error}), so no owners are known"
    return tuple(
        Owners(_function_at(finding.path, finding.line), tuple(finding.names), finding.path, finding.line, finding.code)
        for finding in findings
        if finding.names
    ), ""


def _lint(files: Iterable[str]) -> Iterable[Any]:
    from cachelint.engine import analyze
    from cachelint.index.project import Project
    from cachelint.settings import Settings

    settings = Settings(select=CODES)
    paths = list(files)
    project = Project(os.getcwd(), paths, _text)
    for path in paths:
        yield from (finding for finding in analyze(path, project, settings).findings if finding.code in CODES)


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
