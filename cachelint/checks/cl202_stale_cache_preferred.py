"""CL202: backward takes the cache although it has the live input."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import loaded, names, statements
from cachelint.index.module import FunctionNode
from cachelint.index.walk import code_of, walk
from cachelint.model import FieldClass, FieldReport, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """``self.x if self.x is not None else x``, ``self.x or x``, and an ``if`` that puts the field over the argument."""
    unit = context.analysis.unit
    if unit.trainer or unit.dialect.name not in ("graph-node", "layer"):
        return
    fields = {f.field: f for f in context.report.fields if f.read and f.cls is FieldClass.RECOMPUTE}
    if not fields:
        return
    for method in unit.backward:
        live = _live(method.node)
        if method.module is not unit.module or not live:
            continue
        for node in walk(method.node):
            found = _preferred(node, fields, live, method.node)
            if found is not None:
                field, name = found
                yield context.at(
                    rule,
                    node,
                    f"backward takes `self.{field.field}` before its own argument `{name}`: after two forwards that is another "
                    "call's value. Use the argument, and the field only without it",
                    field=field,
                )


def _live(node: FunctionNode) -> set[str]:
    live = set(names(node)[2:])
    return live | {node.args.vararg.arg} if node.args.vararg is not None else live


def _preferred(
    node: ast.AST, fields: dict[str, FieldReport], live: set[str], scope: FunctionNode
) -> tuple[FieldReport, str] | None:
    if isinstance(node, ast.IfExp):
        field, name = _field(node.body, fields), _name(node.orelse, live)
        if field is not None and name and field.field in code_of(node.test):
            return field, name
        other, first = _field(node.orelse, fields), _name(node.body, live)
        if other is not None and first and isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.Is):
            if _field(node.test.left, fields) is other:
                return other, first
    elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        field, name = _field(node.values[0], fields), _name(node.values[-1], live)
        if field is not None and name:
            return field, name
    elif isinstance(node, ast.If) and not node.orelse:
        # `if self.x is not None: x = self.x`; asking for x first is the right order.
        tested = code_of(node.test)
        for statement in statements(node.body):
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                field, name = _field(statement.value, fields), _name(statement.targets[0], live)
                if field is not None and name and f".{field.field}" in tested and not _asks(node.test, name):
                    return (field, name) if name in loaded(scope) else None
    return None


def _asks(test: ast.expr, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in walk(test))


def _field(node: ast.expr, fields: dict[str, FieldReport]) -> FieldReport | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return fields.get(node.attr)
    return None


def _name(node: ast.expr, live: set[str]) -> str:
    if isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) and node.id in live else ""
