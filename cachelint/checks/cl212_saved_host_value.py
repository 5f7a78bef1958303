"""CL212: something that is no tensor is passed to save_for_backward."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import saves
from cachelint.index.walk import code_of
from cachelint.infer.values import HIGH, HOST, Const, Seq, Value
from cachelint.model import Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Arguments of the save call that are surely host values, or containers that should have a star."""
    analysis = context.analysis
    log = analysis.log
    if not log.saves or analysis.unit.dialect.name in ("graph-node", "layer", "chainer") or not analysis.unit.native:
        return
    for save in saves(log):
        if save.file != analysis.unit.module.path:
            continue
        for expr, value in zip(save.exprs, save.values, strict=False):
            what = _host(value, expr)
            if what:
                target = expr.value if isinstance(expr, ast.Starred) else expr
                yield context.at(
                    rule,
                    target,
                    f"`{code_of(target)}` is {what}: save_for_backward takes tensors and None only, and raises TypeError "
                    "as soon as an input requires grad",
                )


def _host(value: Value, expr: ast.expr) -> str:
    """What kind of host value it is, empty when that is not certain."""
    if value.kinds != HOST or "starred" in value.tags:
        return ""
    if isinstance(value.ref, Seq):
        if value.ref.shared or not (value.ref.items or value.ref.rest or value.ref.keys):
            return ""
        return "a container; take it apart with `*`" if not isinstance(expr, ast.Starred) else "a container"
    if isinstance(value.ref, Const):
        return "a constant"
    if value.ref is None and value.sure == HIGH and ("shape" in value.tags or value.why is not None):
        return "a host value" if value.why is None else f"a host value ({value.why.text})"
    return "a host value" if value.sure == HIGH and _host_by_form(expr) else ""


def _host_by_form(expr: ast.expr) -> bool:
    """``x.shape[0]``, ``len(x)``, ``x.size(1)``: forms that give no tensor."""
    if isinstance(expr, ast.Subscript):
        return isinstance(expr.value, ast.Attribute) and expr.value.attr == "shape"
    if isinstance(expr, ast.Call):
        func = expr.func
        if isinstance(func, ast.Attribute):
            return func.attr in ("size", "numel", "dim", "item", "stride", "nelement")
        return isinstance(func, ast.Name) and func.id in ("len", "int", "float", "bool", "str")
    return isinstance(expr, ast.Attribute) and expr.attr in ("shape", "dtype", "device", "ndim")
