"""Fields that backward reads and that nothing sets at all: the extreme of CL203."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cachelint.checks import TypeContext
from cachelint.checks.support import home_made
from cachelint.collect.log import Read
from cachelint.index.walk import code_of, last_name, walk

_DECORATORS = frozenset(
    "staticmethod classmethod once_differentiable no_grad disable custom_fwd custom_bwd autocast_custom_fwd"
    " autocast_custom_bwd input_guard".split()
)
"""Decorators that set no attribute of the receiver but those that begin with an underscore."""


def never_set(context: TypeContext) -> Iterator[Read]:
    """The first read of each such field. Nothing is said where code out of sight may set it."""
    analysis = context.analysis
    unit, log = analysis.unit, analysis.log
    if unit.dialect.name != "torch-function" or unit.trainer or unit.info is None:
        return
    known = {w.field for w in log.writes} | set(log.initial) | set(log.attrs) | log.api
    entries = {m.node.name for m in unit.backward}
    seen: set[str] = set()
    for read in log.reads:
        if read.phase != "backward" or read.field in known or read.field in seen or read.field.startswith("_"):
            continue
        if read.file != unit.module.path or read.function not in entries or not read.sure:
            continue
        seen.add(read.field)
        if not seen - {read.field} and not _in_sight(context):
            return
        if not _reaches(read.field, read.scope) and not _set_elsewhere(read.field, context):
            yield read


def _in_sight(context: TypeContext) -> bool:
    """Whether all that forward does with its receiver was seen: known bases and decorators, nothing handed away."""
    analysis = context.analysis
    info = analysis.unit.info
    assert info is not None
    if analysis.machine.exhausted or analysis.log.escapes or home_made(analysis):
        return False
    if info.node.decorator_list or info.node.keywords:
        return False
    owners = analysis.machine.mro(info)
    names = {owner.name for owner in owners}
    if any(last_name(base) not in names and not _BASE.search(code_of(base)) for o in owners for base in o.node.bases):
        return False
    for method in (*analysis.unit.forward, *analysis.unit.setup, *analysis.unit.backward):
        if any(isinstance(node, ast.Call) and last_name(node.func) == "setattr" for node in walk(method.node)):
            return False
        for decorator in method.node.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if last_name(target) not in _DECORATORS:
                return False
    return True


_BASE = re.compile(r"(?:^|\bautograd\.(?:function\.)?)(?:Function|InplaceFunction)$")


def _reaches(field: str, scope: ast.AST | None) -> bool:
    """Whether the function around the read asks for the attribute, or may handle that it is missing."""
    if scope is None:
        return True
    for node in walk(scope):
        if isinstance(node, ast.Try):
            return True
        if isinstance(node, ast.Call) and last_name(node.func) in ("hasattr", "getattr", "setattr"):
            if len(node.args) > 1 and not (isinstance(node.args[1], ast.Constant) and node.args[1].value != field):
                return True
    return False


def _set_elsewhere(field: str, context: TypeContext) -> bool:
    """Whether a class body, a method or any file of the project gives some object an attribute of that name."""
    info = context.analysis.unit.info
    assert info is not None
    if any(field in owner.members for owner in context.analysis.machine.mro(info)):
        return True
    sets = re.compile(
        rb"\."
        + (name := re.escape(field.encode()))
        + rb"\b\s*(?::[^=\n]*|(?:,\s*[\w.]+)+,?\s*)?=[^=]|[\"']"
        + name
        + rb"[\"']"
    )
    unit, project = context.analysis.unit, context.project
    word = unit.name.partition(".")[0]
    for chunk in unit.module.chunks:
        # Another class of the same file has receivers of its own.
        if (chunk.kind != "class" or word in chunk.text) and sets.search(chunk.text.encode()):
            return True
    for path in project.files:
        data = project.raw(path)
        if path != unit.module.path and info.name.encode() in data and sets.search(data):
            project.used.add(path)
            return True
    return False
