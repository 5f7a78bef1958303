"""CL201: a field is assigned in forward and read by nobody."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.index.walk import walk
from cachelint.model import Confidence, FieldClass, FieldReport, Finding, Storage


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Fields that may hold device storage, that no event reads, and whose name no other code reads."""
    analysis = context.analysis
    candidates = [
        f
        for f in context.report.fields
        if not f.read
        and not f.registered
        and f.cls is not FieldClass.SAFE
        and f.storage is not Storage.UNKNOWN
        and f.confidence is not Confidence.LOW
    ]
    if not candidates or analysis.machine.exhausted or any(e.phase == "forward" for e in analysis.log.escapes):
        return
    read = {r.field for r in analysis.log.reads if r.phase == "forward" and not r.unset}
    for field in candidates:
        if (
            field.field in read
            or field.field in analysis.log.api
            or any(_read_here(name, context) or _read_elsewhere(name, context) for name in _names(field.field, context))
        ):
            continue
        place = _write(field, context)
        if place is not None:
            yield context.at(
                rule,
                place,
                f"`{field.field}` is assigned in forward and read by nobody: it holds memory from forward to backward for nothing",
                field=field,
            )


def _write(field: FieldReport, context: TypeContext) -> ast.AST | None:
    path = context.analysis.unit.module.path
    for write in context.analysis.log.writes:
        if write.field == field.field and write.file == path and getattr(write.node, "lineno", 0) == field.line:
            return write.node
    return None


def _names(field: str, context: TypeContext) -> list[str]:
    """What code may call a field: a private one has another name outside its class."""
    if not field.startswith("__") or field.endswith("__"):
        return [field]
    return [field, f"_{context.analysis.unit.name.rpartition('.')[2].lstrip('_')}{field}"]


def _read_here(name: str, context: TypeContext) -> bool:
    """Whether the type's own file reads an attribute of that name, by syntax, or names it in a string."""
    unit = context.analysis.unit
    word = unit.name.rpartition(".")[2]
    quoted = (f'"{name}"', f"'{name}'")
    for chunk in unit.module.chunks:
        if any(text in chunk.text for text in quoted):
            return True
        if f".{name}" in chunk.text:
            # Another class's own field of the same name says nothing.
            foreign = chunk.kind == "class" and word not in chunk.text
            for statement in unit.module.statements(chunk):
                for node in walk(statement):
                    if isinstance(node, ast.Attribute) and node.attr == name and not isinstance(node.ctx, ast.Store):
                        if not (foreign and isinstance(node.value, ast.Name) and node.value.id in ("self", "ctx")):
                            return True
    return False


def _is_test(path: str) -> bool:
    folders, _, name = path.rpartition("/")
    return name.startswith("test_") or "/tests" in folders or "/test/" in f"{folders}/"


def _read_elsewhere(name: str, context: TypeContext) -> bool:
    """Whether another file may read it: ``something.name``, or ``self.name`` in a subclass."""
    unit, project = context.analysis.unit, context.project
    word = unit.name.rpartition(".")[2].encode()
    field = re.escape(name.encode())
    needle = f".{name}".encode()
    quoted = (f'"{name}"'.encode(), f"'{name}'".encode())
    load = re.compile(rb"(\bself)?\." + field + rb"\b(?!\s*(?::[^=\n]*)?=[^=])")
    subclass = re.compile(rb"class\s+\w+\s*\([^)]*\b" + re.escape(word) + rb"\b")
    for path in project.files:
        if path == unit.module.path:
            continue
        data = project.raw(path)
        if needle in data and (word in data or (unit.receiver_is_self and not _is_test(path))):
            inherits = word in data and subclass.search(data) is not None
            if any(inherits or not found.group(1) for found in load.finditer(data)):
                project.used.add(path)  # the verdict rests on it
                return True
        if word in data and any(text in data for text in quoted):
            project.used.add(path)
            return True
    return False
