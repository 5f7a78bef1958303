"""CL207: a forward runs inside backward only to seed a cache."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import statements
from cachelint.index.module import FunctionNode
from cachelint.index.walk import code_of, last_name, walk
from cachelint.model import Finding

_FORWARDS = ("forward", "__call__", "forward_cpu", "forward_gpu")


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Calls of the layer's own forward, or of a child's, whose result is thrown away."""
    unit = context.analysis.unit
    if unit.trainer or unit.dialect.name not in ("graph-node", "layer", "chainer"):
        return
    for method in unit.backward:
        if method.module is not unit.module or "enable_grad" in _decorators(method.node):
            continue
        for statement in statements(method.node.body):
            call = _dropped(statement)
            if call is None or _runs_autograd(method.node):
                continue
            target = (
                call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr in _FORWARDS else call.func
            )
            if isinstance(call.func, ast.Attribute) and call.func.attr in _FORWARDS and _of_self(target):
                whose = "forward" if isinstance(target, ast.Name) else f"the forward of `{code_of(target)}`"
                yield context.at(
                    rule,
                    call,
                    f"{whose} runs in backward for its side effects: what it draws is drawn anew, what it counts is counted twice. "
                    "Share a helper that returns the values",
                )


def _dropped(statement: ast.stmt) -> ast.Call | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return statement.value
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
        if all(isinstance(target, ast.Name) and target.id == "_" for target in statement.targets):
            return statement.value
    return None


def _of_self(node: ast.expr) -> bool:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name) and node.id == "self"


def _runs_autograd(node: FunctionNode) -> bool:
    return any(
        isinstance(item, ast.Call) and last_name(item.func) in ("enable_grad", "set_grad_enabled", "grad")
        for item in walk(node)
    )


def _decorators(node: FunctionNode) -> str:
    return " ".join(code_of(decorator) for decorator in node.decorator_list)
