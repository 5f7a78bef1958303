"""CL201: a field is assigned in forward and read by nobody."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.model import FieldClass, FieldReport, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Fields that may hold device storage, that no event reads, and whose name no other code reads."""
    analysis = context.analysis
    candidates = [f for f in context.report.fields if not f.read and not f.registered and f.cls is not FieldClass.SAFE]
    if not candidates or analysis.machine.exhausted or any(e.phase == "forward" for e in analysis.log.escapes):
        return
    read = {r.field for r in analysis.log.reads if r.phase == "forward" and not r.unset}
    for field in candidates:
        if field.field in read or field.field in analysis.log.api or _read_here(field.field, context) or _read_elsewhere(field.field, context):
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


def _read_here(name: str, context: TypeContext) -> bool:
    """Whether the type's own file reads an attribute of that name, by syntax, or names it in a string."""
    module = context.analysis.unit.module
    quoted = (f'"{name}"', f"'{name}'")
    for chunk in module.chunks:
        if any(text in chunk.text for text in quoted):
            return True
        if f".{name}" in chunk.text:
            for statement in module.statements(chunk):
                for node in ast.walk(statement):
                    if isinstance(node, ast.Attribute) and node.attr == name and not isinstance(node.ctx, ast.Store):
                        return True
    return False


def _read_elsewhere(name: str, context: TypeContext) -> bool:
    """Whether another file of the project may read it: one that mentions the class (for a layer, any) and ``.name``."""
    unit, project = context.analysis.unit, context.project
    word = unit.name.rpartition(".")[2].encode()
    needle = f".{name}".encode()
    load = re.compile(rb"\." + re.escape(name.encode()) + rb"\b(?!\s*(?::[^=\n]*)?=[^=])")
    own = re.compile(rb"\bself\." + re.escape(name.encode()) + rb"\b")
    quoted = (f'"{name}"'.encode(), f"'{name}'".encode())
    for path in project.files:
        if path == unit.module.path:
            continue
        data = project.raw(path)
        mentions = word in data
        if needle in data and (mentions or unit.receiver_is_self):
            found = load.findall(data)
            # Another class's own field of the same name says nothing, unless that class is one of ours.
            if found and (mentions or len(found) > len(own.findall(data))):
                project.used.add(path)
                return True
        if mentions and any(text in data for text in quoted):
            project.used.add(path)
            return True
    return False
