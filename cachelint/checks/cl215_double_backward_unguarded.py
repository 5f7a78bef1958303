"""CL215 (off by default): intermediates are saved, and backward is not marked once_differentiable."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import saves
from cachelint.classify import output_roots
from cachelint.index.walk import code_of, last_name, walk
from cachelint.infer.analysis import Analysis
from cachelint.infer.values import DEVICE, RANDOM, Value
from cachelint.model import Finding

_NO_GRADIENT = ("comparison", "index", "argsort", "argmax", "random", "mask", "bool")


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """The first saved intermediate of a Function whose backward goes through without its history."""
    analysis = context.analysis
    unit = analysis.unit
    if unit.dialect.name != "torch-function" or not analysis.log.saves or not unit.backward:
        return
    node = unit.backward[0].node
    if any(last_name(d.func if isinstance(d, ast.Call) else d) == "once_differentiable" for d in node.decorator_list):
        return
    outputs = output_roots(analysis)
    for save in saves(analysis.log):
        if save.file != unit.module.path:
            continue
        for expr, value in zip(save.exprs, save.values, strict=False):
            if not _intermediate(value, outputs, analysis) or _applies(node):
                continue
            target = expr.value if isinstance(expr, ast.Starred) else expr
            yield context.at(
                rule,
                target,
                f"`{code_of(target)}` is neither input nor output: a second derivative misses what depends on it. Mark backward "
                "with once_differentiable, or save inputs and derive it",
            )
            return


def _intermediate(value: Value, outputs: frozenset[str], analysis: Analysis) -> bool:
    if not value.kinds & DEVICE or not value.roots or "side-channel" in value.tags:
        return False
    if any(not root.startswith("n") for root in value.roots) or value.roots & outputs:
        return False
    told = value.why.text if value.why is not None else ""
    return analysis.machine.true_cost(value) != RANDOM and not any(word in told for word in _NO_GRADIENT)


def _applies(node: ast.AST) -> bool:
    """Whether backward runs another Function, whose own backward takes care of the second derivative."""
    return any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "apply" for n in walk(node)
    )
