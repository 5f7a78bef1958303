"""What forward's inputs are, and which names it changes in place."""

from __future__ import annotations

import ast
from typing import TypeGuard

from cachelint.fix.functions.scope import SETUP, Routine, Scope
from cachelint.index.walk import last_name, walk
from cachelint.infer.optable import operators
from cachelint.infer.symbols import settle
from cachelint.infer.values import DEVICE, Seq, carried


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
    """Names whose tensors forward changes in place, those that share their storage included; of fields ``ctx.name``."""
    receiver = routine.receiver
    names: set[str] = set()
    roots: set[str] = set()
    log = scope.context.analysis.log
    for mutation in log.mutations:
        if mutation.phase == "forward":
            roots |= carried(mutation.value).roots
            names.add(mutation.name)
    names |= {root[2:] for root in roots if root.startswith("p:")}
    names |= {binding.name for binding in log.bindings if carried(binding.value).roots & roots}
    names |= {f"{receiver}.{write.field}" for write in log.writes if carried(write.value).roots & roots}
    assigned: list[ast.Assign] = []
    for node in walk(routine.node):
        if isinstance(node, (ast.AugAssign, ast.Subscript, ast.Call)):
            names |= _edited(node, receiver)
        elif isinstance(node, ast.Assign) and _may_alias(node.value):
            assigned.append(node)
    aliases = [
        ({name for target in node.targets for name in _named(target, receiver)}, _named(node.value, receiver))
        for node in (assigned if names else ())
    ]
    while True:
        more: set[str] = set()
        for targets, values in aliases:
            more |= values if targets & names else set()
            more |= targets if values & names else set()
        if more <= names:
            return frozenset(names)
        names |= more


def _edited(node: ast.AST, receiver: str) -> set[str]:
    """The names whose tensors a node may change in place: ``x.add_(1)``, ``x.view(-1)[0] = 1``, ``relu_(x)``, ``out=x``."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.AugAssign):
        targets.append(node.target)
    elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        targets.append(node.value)
    elif isinstance(node, ast.Call):
        keywords = {k.arg: k.value for k in node.keywords}
        flag = keywords.get("inplace")
        asked = flag is not None and not (isinstance(flag, ast.Constant) and not flag.value)
        if asked or _is_in_place(last_name(node.func)):
            targets += [node.func, *node.args[:1]]
        if "out" in keywords:
            targets.append(keywords["out"])
    return {name for target in targets for name in _storages(target, receiver)}


def _is_in_place(name: str) -> bool:
    """Whether a method or function of this name changes a tensor."""
    if name.endswith("__"):
        return name in _DUNDERS
    return name.endswith("_") and name not in operators().not_inplace


_DUNDERS = frozenset(
    f"__{name}__"
    for name in "iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift setitem".split()
)


def _named(node: ast.AST, receiver: str) -> set[str]:
    """The names below a node; fields of the receiver with the receiver in front."""
    found = {item.id for item in walk(node) if isinstance(item, ast.Name)} - {receiver}
    return found | {f"{receiver}.{item.attr}" for item in walk(node) if _is_field(item, receiver)}


def _is_field(node: ast.AST, receiver: str) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == receiver


def _storages(node: ast.expr, receiver: str) -> set[str]:
    """The names behind a chain of attributes, items and methods: ``x`` for ``x.view(-1)[0]``."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return {name for item in node.elts for name in _storages(item, receiver)}
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call, ast.Starred)):
        if _is_field(node, receiver):
            return {f"{receiver}.{node.attr}"}
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()


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
