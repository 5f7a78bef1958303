"""A field that nobody reads goes, with the code that only fed it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from cachelint.checks import FileContext, TypeContext
from cachelint.fix.edits import Edit, Outcome, Plan, Refusal, Rewrite, Text
from cachelint.fix.functions.flow import Flow
from cachelint.index.module import FunctionNode
from cachelint.index.walk import walk
from cachelint.infer.optable import operators
from cachelint.model import Applicability, Finding

CODES = frozenset(("CL201",))
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_PURE_CALLS = frozenset("int float bool len min max abs round tuple list dict set range isinstance type".split())
_EFFECTS = frozenset(("random", "inplace", "collective", "opaque", "workspace"))


def plan(file: FileContext, findings: Sequence[Finding]) -> Iterator[Outcome]:
    """A plan a field."""
    text = Text(file.module.text)
    for context in file.types:
        for finding in findings:
            if finding.type == context.report.type and finding.field is not None:
                if any(f.field == finding.field and f.line == finding.line for f in context.report.fields):
                    yield _field(file, context, text, finding, finding.field)


def _field(file: FileContext, context: TypeContext, text: Text, finding: Finding, name: str) -> Outcome:
    stores: list[tuple[FunctionNode, ast.stmt]] = []
    for write in context.analysis.log.writes:
        if write.field != name:
            continue
        if write.file != file.module.path:
            return Refusal(finding, "it is written in another file, too", "in another file")
        found = _plain(context, write.node)
        if found is None:
            line = getattr(write.node, "lineno", finding.line)
            return Refusal(finding, f"it is set inside another statement (line {line})", "indirect write")
        stores.append(found)
    for scope in _functions(context):
        for statement in walk(scope):
            if (
                isinstance(statement, (ast.Assign, ast.AnnAssign))
                and _target(statement, name)
                and _receives(scope, statement)
            ):
                if not any(known is statement for _, known in stores):
                    stores.append((scope, statement))
    edits: list[Edit] = []
    gone: set[ast.stmt] = set()
    for _, statement in stores:
        if statement in gone:
            continue
        value = getattr(statement, "value", None)
        gone.add(statement)
        if value is None or _pure(value, file):
            edits.append(Rewrite(text.span(statement)))
        else:
            edits.append(Rewrite(text.span(statement), (text.source(value),)))
    for scope in {id(s): s for s, _ in stores}.values():
        edits += _feeders(file, text, scope, gone)
    if not edits:
        return Refusal(finding, "its write was not found", "indirect write")
    spans = tuple(text.span(scope) for scope in {id(s): s for s, _ in stores}.values())
    return Plan((finding,), tuple(edits), Applicability.SAFE, f"drop `{name}`, which nobody reads", spans)


def _functions(context: TypeContext) -> list[FunctionNode]:
    unit = context.analysis.unit
    own = list(unit.info.node.body) if unit.info is not None else []
    found: list[FunctionNode] = [node for node in own if isinstance(node, _FUNCTION)]
    found += [
        m.node for m in (*unit.forward, *unit.setup, *unit.backward) if m.module is unit.module and m.node not in found
    ]
    return found


def _plain(context: TypeContext, node: ast.AST) -> tuple[FunctionNode, ast.stmt] | None:
    """The function and the statement ``receiver.field = value`` that a write is, None for any other form."""
    for scope in _functions(context):
        for statement in walk(scope):
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                if statement is node or statement.targets[0] is node:
                    return (scope, statement) if isinstance(statement.targets[0], ast.Attribute) else None
            elif isinstance(statement, ast.AnnAssign) and node in (statement, statement.target):
                return (scope, statement)
    return None


def _target(statement: ast.Assign | ast.AnnAssign, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return len(targets) == 1 and isinstance(targets[0], ast.Attribute) and targets[0].attr == name


def _receives(scope: FunctionNode, statement: ast.Assign | ast.AnnAssign) -> bool:
    """Whether the statement sets a field of the function's first parameter."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    every = [*scope.args.posonlyargs, *scope.args.args]
    value = target.value if isinstance(target, ast.Attribute) else None
    return bool(every) and isinstance(value, ast.Name) and value.id == every[0].arg


def _feeders(file: FileContext, text: Text, scope: FunctionNode, gone: set[ast.stmt]) -> list[Edit]:
    """Drop assignments of locals that were read by dropped statements alone."""
    flow = Flow(scope)
    edits: list[Edit] = []
    while True:
        again = False
        dead = {n for s in gone for n in walk(s)}
        for name in {n.id for n in dead if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}:
            bindings = flow.bindings.get(name, [])
            if len(bindings) != 1 or name in flow.parameters or any(load not in dead for load in flow.loads(name)):
                continue
            statement = flow.statement(bindings[0])
            if statement in gone or not isinstance(statement, ast.Assign) or statement.targets != [bindings[0]]:
                continue
            if not _pure(statement.value, file):
                continue
            gone.add(statement)
            edits.append(Rewrite(text.span(statement)))
            again = True
        if not again:
            return edits


def _pure(node: ast.expr, file: FileContext) -> bool:
    """Whether leaving an expression out changes nothing but time: names, arithmetic, operators of the table."""
    for item in walk(node):
        if isinstance(item, (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)):
            return False
        if isinstance(item, ast.Call) and not _pure_call(item, file):
            return False
    return True


def _pure_call(call: ast.Call, file: FileContext) -> bool:
    if any(k.arg == "out" for k in call.keywords):
        return False
    table = operators()
    func = call.func
    if isinstance(func, ast.Name):
        if func.id in _PURE_CALLS:
            return True
        found = file.project.resolve(file.module, func.id)
        dotted = found.dotted if found is not None and found.module is None else ""
        return bool(dotted) and _harmless(table.category(dotted))
    if not isinstance(func, ast.Attribute) or (func.attr.endswith("_") and func.attr not in table.not_inplace):
        return False
    head = func
    parts = [func.attr]
    while isinstance(head.value, ast.Attribute):
        head = head.value
        parts.append(head.attr)
    if isinstance(head.value, ast.Name):
        found = file.project.resolve(file.module, head.value.id)
        if found is not None:
            dotted = ".".join([found.dotted, *reversed(parts)]) if found.module is None and found.dotted else ""
            return bool(dotted) and _harmless(table.category(dotted))
        if head.value.id in ("self", "ctx"):
            return False
    return _harmless(table.methods.get(func.attr)) or func.attr in ("size", "dim", "numel")


def _harmless(category: str | None) -> bool:
    return category is not None and category not in _EFFECTS and "random" not in category and "inplace" not in category
