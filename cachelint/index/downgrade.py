"""Rewrite syntax newer than the running Python to older syntax that means the same to the linter.

Line numbers stay: what a rewritten expression loses in lines it gets back as a string of newlines.
"""

from __future__ import annotations

import libcst as cst


def downgrade(text: str) -> str:
    """``text`` in Python 3.11 syntax. Raises libcst.ParserSyntaxError where libcst cannot read it either."""
    return cst.parse_module(text).visit(_Downgrade()).code


class _Downgrade(cst.CSTTransformer):
    """Template and nested f-strings, ``except A, B``, ``type`` statements, type parameters."""

    def leave_FormattedString(
        self, original_node: cst.FormattedString, updated_node: cst.FormattedString
    ) -> cst.BaseExpression:
        return _format(original_node, [updated_node])

    def leave_TemplatedString(
        self, original_node: cst.TemplatedString, updated_node: cst.TemplatedString
    ) -> cst.BaseExpression:
        return _format(original_node, [updated_node])

    def visit_ConcatenatedString(self, node: cst.ConcatenatedString) -> bool:
        return False  # its parts must stay strings: the whole is rewritten at once

    def leave_ConcatenatedString(
        self, original_node: cst.ConcatenatedString, updated_node: cst.ConcatenatedString
    ) -> cst.BaseExpression:
        parts = _parts(original_node)
        if all(isinstance(part, cst.SimpleString) for part in parts):
            return updated_node
        return _format(original_node, [_visited(part) for part in parts])

    def leave_ExceptHandler(
        self, original_node: cst.ExceptHandler, updated_node: cst.ExceptHandler
    ) -> cst.ExceptHandler:
        kind = updated_node.type
        if isinstance(kind, cst.Tuple) and not kind.lpar:
            return updated_node.with_changes(type=_in_parentheses(kind))
        return updated_node

    def leave_ExceptStarHandler(
        self, original_node: cst.ExceptStarHandler, updated_node: cst.ExceptStarHandler
    ) -> cst.ExceptStarHandler:
        kind = updated_node.type
        if isinstance(kind, cst.Tuple) and not kind.lpar:
            return updated_node.with_changes(type=_in_parentheses(kind))
        return updated_node

    def leave_TypeAlias(self, original_node: cst.TypeAlias, updated_node: cst.TypeAlias) -> cst.BaseSmallStatement:
        return cst.Assign([cst.AssignTarget(updated_node.name)], updated_node.value)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        return updated_node.with_changes(type_parameters=None)

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        return updated_node.with_changes(type_parameters=None)


def _in_parentheses(node: cst.Tuple) -> cst.Tuple:
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def _parts(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    if isinstance(node, cst.ConcatenatedString):
        return [*_parts(node.left), *_parts(node.right)]
    return [node]


def _visited(part: cst.BaseExpression) -> cst.BaseExpression:
    if isinstance(part, (cst.FormattedString, cst.TemplatedString)):
        changed = part.with_changes(parts=[p.visit(_Downgrade()) for p in part.parts])
        assert isinstance(changed, cst.BaseExpression)
        return changed
    return part


def _format(original: cst.BaseExpression, strings: list[cst.BaseExpression]) -> cst.BaseExpression:
    """``"".format(...)`` of every expression inside the strings, as many lines long as the original."""
    found: list[cst.BaseExpression] = []
    for string in strings:
        if isinstance(string, (cst.FormattedString, cst.TemplatedString)):
            found.extend(_expressions(string.parts))
    call = cst.Call(
        cst.Attribute(cst.SimpleString('""'), cst.Name("format")),
        [cst.Arg(_bare(expression)) for expression in found],
    )
    empty = cst.Module([])
    missing = empty.code_for_node(original).count("\n") - empty.code_for_node(call).count("\n")
    if missing > 0:
        filler = cst.Arg(cst.SimpleString('"""' + "\n" * missing + '"""'))
        call = call.with_changes(args=[*call.args, filler])
    return call


def _expressions(parts: object) -> list[cst.BaseExpression]:
    found: list[cst.BaseExpression] = []
    for part in parts:  # type: ignore[attr-defined]
        if isinstance(part, (cst.FormattedStringExpression, cst.TemplatedStringExpression)):
            found.append(part.expression)
            if part.format_spec:
                found.extend(_expressions(part.format_spec))
    return found


def _bare(expression: cst.BaseExpression) -> cst.BaseExpression:
    # A tuple or a generator needs its own parentheses as an argument.
    if isinstance(expression, (cst.Tuple, cst.GeneratorExp, cst.Yield, cst.NamedExpr)) and not expression.lpar:
        changed = expression.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        assert isinstance(changed, cst.BaseExpression)
        return changed
    return expression
