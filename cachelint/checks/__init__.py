"""The rules' checks: one module a rule, found by its file name ``cl101_cached_live_input.py``.

A module has ``check``. With the parameter type :class:`TypeContext` it is called once a type, with
:class:`FileContext` once a file (``SCOPE = "file"``). It yields findings; everything it needs is in the context.
"""

from __future__ import annotations

import ast
import importlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cachelint.model import Applicability, FieldReport, Finding, FixNote, TypeReport
from cachelint.settings import Settings

if TYPE_CHECKING:
    from cachelint.composite import Composites
    from cachelint.index.module import ModuleInfo
    from cachelint.index.project import Project
    from cachelint.infer.analysis import Analysis


@dataclass(frozen=True, slots=True)
class TypeContext:
    """One type with its interpretation (events, values) and its report (verdicts)."""

    analysis: Analysis
    report: TypeReport
    project: Project
    settings: Settings
    composites: Composites

    def at(
        self,
        rule: Rule,
        node: ast.AST,
        message: str,
        *,
        field: FieldReport | None = None,
        fix: FixNote | None = None,
        names: tuple[str, ...] = (),
    ) -> Finding:
        """A finding at ``node`` (which must lie in the type's own file)."""
        return place(rule, node, message, self.report.path, self.report.type, field=field, fix=fix, names=names)


@dataclass(frozen=True, slots=True)
class FileContext:
    """One file with all its types."""

    module: ModuleInfo
    path: str
    types: tuple[TypeContext, ...]
    project: Project
    settings: Settings

    def at(
        self,
        rule: Rule,
        node: ast.AST,
        message: str,
        *,
        kind: str | None = None,
        names: tuple[str, ...] = (),
        fix: FixNote | None = None,
    ) -> Finding:
        """A finding at ``node``."""
        return place(rule, node, message, self.path, kind, names=names, fix=fix)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as its check sees it: the code and name from the file name, whether it runs by type or by file."""

    code: str
    name: str
    module: str
    by_file: bool = False


def place(
    rule: Rule,
    node: ast.AST,
    message: str,
    path: str,
    kind: str | None,
    *,
    field: FieldReport | None = None,
    fix: FixNote | None = None,
    names: tuple[str, ...] = (),
) -> Finding:
    """A finding at a node of the tree."""
    line = getattr(node, "lineno", 1)
    column = getattr(node, "col_offset", 0) + 1
    return Finding(
        code=rule.code,
        name=rule.name,
        path=path,
        line=line,
        column=column,
        end_line=getattr(node, "end_lineno", None) or line,
        end_column=(getattr(node, "end_col_offset", None) or column - 1) + 1,
        message=message,
        type=kind,
        field=field.field if field is not None else None,
        cls=field.cls if field is not None else None,
        fix=fix,
        names=names,
    )


def of_field(
    context: TypeContext, rule: Rule, message: Callable[[FieldReport], str], fix: FixNote | None = None
) -> Iterator[Finding]:
    """A finding for every live field whose verdict names this rule."""
    for field in context.report.fields:
        if field.rule == rule.code and not field.registered:
            yield Finding(
                code=rule.code,
                name=rule.name,
                path=context.report.path,
                line=field.line,
                column=field.column,
                end_line=field.end_line,
                end_column=field.end_column,
                message=message(field),
                type=context.report.type,
                field=field.field,
                cls=field.cls,
                fix=fix,
            )


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """Every rule that has a check, in the order of the codes."""
    found = []
    for name in sorted(os.listdir(os.path.dirname(__file__))):
        stem, extension = os.path.splitext(name)
        if extension == ".py" and stem[:2] == "cl" and stem[2:5].isdigit():
            by_file = stem[2] == "3"
            found.append(Rule(stem[:5].upper(), stem[6:].replace("_", "-"), f"{__name__}.{stem}", by_file))
    return tuple(found)


@lru_cache(maxsize=2)
def _checks(by_file: bool) -> tuple[tuple[Rule, Callable[[Any, Rule], Iterator[Finding]]], ...]:
    """The rules that look at a file, or at a type, each with its check."""
    return tuple((rule, importlib.import_module(rule.module).check) for rule in rules() if rule.by_file == by_file)


def load() -> None:
    """Import every check: once before processes are forked, not once in each."""
    _checks(by_file=False)
    _checks(by_file=True)


def run_type(context: TypeContext) -> Iterator[Finding]:
    """All findings of the rules that look at one type."""
    for rule, check in _checks(by_file=False):
        yield from check(context, rule)


def run_file(context: FileContext) -> Iterator[Finding]:
    """All findings of the rules that look at one file."""
    for rule, check in _checks(by_file=True):
        yield from check(context, rule)


def safe(description: str) -> FixNote:
    """The note of a fix that keeps behaviour."""
    return FixNote(Applicability.SAFE, description)


def unsafe(description: str) -> FixNote:
    """The note of a fix that may change behaviour."""
    return FixNote(Applicability.UNSAFE, description)
