"""CL219: a tensor is kept or saved through ``.data``, past the version check."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.index.walk import code_of
from cachelint.infer.values import DEVICE, OPAQUE, Value
from cachelint.model import Finding

_DIALECTS = ("torch-function", "torch-library", "graph-node", "layer")


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Values whose last step was ``.data``, in save calls and in fields that backward reads."""
    analysis = context.analysis
    if analysis.unit.dialect.name not in _DIALECTS:
        return
    log = analysis.log
    path = analysis.unit.module.path
    seen: set[int] = set()
    for save in log.saves:
        if save.phase == "forward" and save.file == path:
            for expr, value in zip(save.exprs, save.values, strict=False):
                if _through(value) and id(expr) not in seen:
                    seen.add(id(expr))
                    target = expr.value if isinstance(expr, ast.Starred) else expr
                    yield context.at(rule, target, _message(f"`{code_of(target)}` is saved"))
    read = {field.field: field for field in context.report.fields if field.read}
    for write in log.writes:
        if write.phase == "forward" and write.file == path and _through(write.value) and write.field in read:
            if id(write.node) not in seen:
                seen.add(id(write.node))
                told = _message(f"`{write.field}` keeps a tensor")
                yield context.at(rule, write.node, told, field=read[write.field])


def _through(value: Value) -> bool:
    if value.cost == OPAQUE:
        return False  # what unseen code returns may be an object with an attribute of that name
    return "data" in value.tags and bool(value.kinds & DEVICE) and value.ref is None and "foreign" not in value.tags


def _message(what: str) -> str:
    return (
        f"{what} through `.data`, which has a version counter of its own: an in-place edit goes unnoticed. "
        "Use the tensor itself, or `detach()`"
    )
