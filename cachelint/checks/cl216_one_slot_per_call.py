"""CL216: instance state that a second call of the same layer overwrites before the first one's backward."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import exclusive, statements
from cachelint.collect.log import ChildCall, ReceiverLog
from cachelint.composite import Child
from cachelint.index.module import FunctionNode
from cachelint.index.walk import last_name, walk
from cachelint.model import FieldClass, Finding

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """One instance applied twice in a parent's forward, or by code of the module that makes it."""
    unit = context.analysis.unit
    if unit.trainer or unit.dialect.name not in ("graph-node", "layer"):
        return
    yield from _by_parent(context, rule)
    if any(field.read and field.cls is not FieldClass.SAFE for field in context.report.fields):
        yield from _by_module(context, rule)


# -- a parent's forward ------------------------------------------------------------------------------------------------


def _by_parent(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    analysis = context.analysis
    log = analysis.log
    for child in context.composites.children(analysis) if log.child_calls else ():
        if not child.single or not child.backward:
            continue
        forwards = [c for c in child.forward if c.method in ("forward", "__call__")]
        if any(c.method == "backward" for c in child.forward):
            continue
        second = _second(forwards, log, context)
        if second is None or second.file != analysis.unit.module.path:
            continue
        judged = context.composites.judge(child)
        if judged is not None and judged.layer and judged.state:
            yield context.at(rule, second.node, _message(_holder(child), [f.field for f in judged.state]))


def _second(calls: list[ChildCall], log: ReceiverLog, context: TypeContext) -> ChildCall | None:
    for number, late in enumerate(calls):
        if _in_loop(late, context):
            return late
        if any(early.node is not late.node and not exclusive(early, late, log) for early in calls[:number]):
            return late
    return None


def _in_loop(call: ChildCall, context: TypeContext) -> bool:
    """Whether the call stands in a loop or comprehension of one of the type's own methods."""
    info = context.analysis.unit.info
    if info is None:
        return False
    for owner in context.analysis.machine.mro(info):
        method = owner.method(call.function)
        if method is None:
            continue
        for loop in walk(method):
            if isinstance(loop, _LOOPS) and any(node is call.node for part in _repeated(loop) for node in walk(part)):
                return True
        return False
    return False


def _repeated(loop: ast.AST) -> list[ast.AST]:
    if isinstance(loop, (ast.For, ast.AsyncFor, ast.While)):
        return list(loop.body)
    if isinstance(loop, ast.DictComp):
        return [loop.key, loop.value]
    assert isinstance(loop, (ast.ListComp, ast.SetComp, ast.GeneratorExp))
    return [loop.elt]


def _holder(child: Child) -> str:
    return f"`self.{child.attribute}`" if child.attribute else f"this {child.inst.info.name}"


# -- code of the same module ---------------------------------------------------------------------------------------------


def _by_module(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """``layer = Layer(…)`` and two applications of ``layer`` with no backward between, in one function or at the top."""
    unit = context.analysis.unit
    name = unit.name.rpartition(".")[2]
    state = [f.field for f in context.report.fields if f.read and f.cls is not FieldClass.SAFE]
    for chunk in unit.module.chunks:
        if chunk.kind == "class" or f"{name}(" not in chunk.text:
            continue
        for statement in unit.module.statements(chunk):
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from _in_function(statement, name, state, context, rule)


def _in_function(
    function: FunctionNode, name: str, state: list[str], context: TypeContext, rule: Rule
) -> Iterator[Finding]:
    made = [
        s.targets[0].id
        for s in statements(function.body)
        if isinstance(s, ast.Assign)
        and len(s.targets) == 1
        and isinstance(s.targets[0], ast.Name)
        and isinstance(s.value, ast.Call)
        and last_name(s.value.func) == name
    ]
    for variable in made:
        if made.count(variable) > 1 or not _goes_back(function, variable):
            continue
        applied = 0
        for statement in function.body:
            if _mentions_backward(statement, variable):
                applied = 0
            for call in _applications(statement, variable):
                applied += 1
                if applied == 2:
                    yield context.at(rule, call, _message(f"`{variable}`", state))
                    return


def _goes_back(function: FunctionNode, variable: str) -> bool:
    return any(_mentions_backward(statement, variable) for statement in function.body)


def _mentions_backward(statement: ast.AST, variable: str) -> bool:
    return any(
        isinstance(n, ast.Attribute)
        and n.attr == "backward"
        and isinstance(n.value, ast.Name)
        and n.value.id == variable
        for n in walk(statement)
    )


def _applications(statement: ast.AST, variable: str) -> Iterator[ast.Call]:
    if isinstance(statement, (ast.If, ast.Try, ast.FunctionDef, ast.ClassDef)):
        return  # arms may exclude each other
    for node in walk(statement):
        if isinstance(node, ast.Call):
            func = node.func
            if isinstance(func, ast.Attribute) and func.attr == "forward":
                func = func.value
            if isinstance(func, ast.Name) and func.id == variable:
                yield node


def _message(holder: str, state: list[str]) -> str:
    kept = ", ".join(f"`{name}`" for name in state[:3])
    return (
        f"{holder} is applied a second time before its backward: {kept} of the first call is overwritten, and its gradient comes "
        "from the second call's values. Use one instance a call"
    )
