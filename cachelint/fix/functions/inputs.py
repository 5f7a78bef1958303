"""What forward's inputs are, and which names it changes in place."""

from __future__ import annotations

import ast

from cachelint.fix.functions.scope import SETUP, Routine, Scope
from cachelint.index.walk import walk
from cachelint.infer.optable import operators
from cachelint.infer.symbols import settle
from cachelint.infer.values import DEVICE, Seq


def input_kinds(scope: Scope, routine: Routine) -> dict[str, int]:
    """What each input of a forward or setup_context is, by its name there."""
    analysis = scope.context.analysis
    settled, symbols = analysis.machine.settled, analysis.machine.symbols
    kinds = {name: (settled.get(name) or settle(symbol)).kinds for name, symbol in symbols.items()}
    parameters = list(analysis.parameters)
    if SETUP not in routine.roles:
        return {name: kinds[name] for name in parameters if name in kinds}
    own = [a.arg for a in (*routine.node.args.posonlyargs, *routine.node.args.args)]
    found: dict[str, int] = {}
    inputs = own[1] if len(own) > 1 else ""
    output = own[-1] if len(own) > 2 else ""
    result = analysis.forward_result
    if output and result is not None and not isinstance(result.ref, Seq) and result.kinds & DEVICE:
        found[output] = DEVICE
    for statement in routine.node.body:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            continue
        target, value = statement.targets[0], statement.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Name) and value.id == inputs:
            for parameter, element in zip(parameters, target.elts, strict=False):
                if isinstance(element, ast.Starred):
                    break
                if isinstance(element, ast.Name) and parameter in kinds:
                    found[element.id] = kinds[parameter]
        elif isinstance(target, ast.Name) and isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
            index = value.slice.value if isinstance(value.slice, ast.Constant) else None
            if value.value.id == inputs and isinstance(index, int) and 0 <= index < len(parameters):
                if parameters[index] in kinds:
                    found[target.id] = kinds[parameters[index]]
    return found


def changed_in_place(scope: Scope, routine: Routine) -> frozenset[str]:
    """Names whose tensors forward changes in place, those that share their storage included."""
    names: set[str] = set()
    roots: set[str] = set()
    for mutation in scope.context.analysis.log.mutations:
        if mutation.phase == "forward":
            roots |= mutation.value.roots
            names.add(mutation.name)
    names |= {root[2:] for root in roots if root.startswith("p:")}
    table = operators()
    for node in walk(routine.node):
        target: ast.expr | None = None
        if isinstance(node, ast.AugAssign):
            target = node.target
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            target = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name.endswith("_") and name not in table.not_inplace:
                target = node.func.value
            names |= {k.value.id for k in node.keywords if k.arg == "out" and isinstance(k.value, ast.Name)}
        while isinstance(target, (ast.Attribute, ast.Subscript)):
            target = target.value
        if isinstance(target, ast.Name):
            names.add(target.id)
    while True:
        more: set[str] = set()
        for node in walk(routine.node):
            if isinstance(node, ast.Assign) and any(n in names for t in node.targets for n in names_of(t)):
                if _may_alias(node.value):
                    more |= {n.id for n in walk(node.value) if isinstance(n, ast.Name)}
            elif isinstance(node, ast.Assign) and _may_alias(node.value):
                if any(isinstance(n, ast.Name) and n.id in names for n in walk(node.value)):
                    more |= {n for t in node.targets for n in names_of(t)}
        if more <= names:
            return frozenset(names)
        names |= more


def _may_alias(value: ast.expr) -> bool:
    if isinstance(value, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Constant)):
        return False
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        category = operators().methods.get(value.func.attr)
        return category not in ("elementwise", "rowstat", "constant", "host_value", "expensive", "random")
    return True


def names_of(target: ast.expr) -> list[str]:
    """The names in a target."""
    return [n.id for n in walk(target) if isinstance(n, ast.Name)]
