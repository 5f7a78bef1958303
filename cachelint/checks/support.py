"""What several checks need: which events can happen in one run, where a statement stands, what a value is called."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Protocol

from cachelint.collect.log import Path, Read, ReceiverLog, Save
from cachelint.index.module import FunctionNode
from cachelint.index.walk import blocks, code_of, last_name, parents, walk
from cachelint.infer.analysis import Analysis
from cachelint.infer.values import Value, carried


class Event(Protocol):
    """What all events of a log have."""

    @property
    def function(self) -> str:
        """The function that was being interpreted."""

    @property
    def order(self) -> int:
        """Its number in the order of interpretation."""

    @property
    def path(self) -> Path:
        """The branches that lead to it."""


# -- paths -----------------------------------------------------------------------------------------------------------


def exclusive(a: Event, b: Event, log: ReceiverLog) -> bool:
    """Whether no single run reaches both events, as far as branches, early returns and equal tests show."""
    mine = dict(a.path)
    if any(mine.get(branch, arm) != arm for branch, arm in b.path):
        return True
    if any(arm.startswith("except") for _, arm in (*a.path, *b.path)):
        return True
    early, late = (a, b) if a.order <= b.order else (b, a)
    return _left_before(early, late, log) or _opposite(a.path, b.path, log)


def _left_before(early: Event, late: Event, log: ReceiverLog) -> bool:
    """Whether an arm around the early event ends by leaving the function in which the late one stands."""
    inside = {branch for branch, _ in late.path}
    entries = {name for _, _, name in log.entries}
    for branch, arm in early.path:
        how = log.ended.get((branch, arm))
        if how is None or branch in inside:
            continue
        if how in ("raise", "jump", late.function) or (how in entries and late.function not in entries):
            return True
    return False


def _opposite(a: Path, b: Path, log: ReceiverLog) -> bool:
    mine = facts(a, log)
    return bool(mine) and any((text, not truth) in mine for text, truth in facts(b, log))


def facts(path: Path, log: ReceiverLog) -> set[tuple[str, bool]]:
    """What a path says of tests: each test's text without ``not``, and whether it holds."""
    found: set[tuple[str, bool]] = set()
    for branch, arm in path:
        node = log.branches.get(branch)
        if node is not None:
            found.update(_facts(node.test, arm == "then"))
    return found


def _facts(test: ast.expr, truth: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _facts(test.operand, not truth)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is truth:
        for part in test.values:
            yield from _facts(part, truth)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, op, right = code_of(test.left), test.ops[0], code_of(test.comparators[0])
        if isinstance(op, (ast.IsNot, ast.NotEq)):
            truth = not truth
        yield (f"{left} {'is' if isinstance(op, (ast.Is, ast.IsNot)) else type(op).__name__} {right}", truth)
        if right == "None":
            yield (left, not truth)
    else:
        yield (code_of(test), truth)


def entry_of(event: Event, phase: str, log: ReceiverLog) -> str:
    """The method of the type that was being run when the event happened."""
    name = ""
    for order, when, begun in log.entries:
        if when == phase and order <= event.order:
            name = begun
    return name


# -- syntax ----------------------------------------------------------------------------------------------------------


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement below, without looking into expressions."""
    for statement in body:
        yield statement
        for block in blocks(statement):
            yield from statements(block)


def names(function: FunctionNode) -> list[str]:
    """The positional parameters of a function."""
    return [a.arg for a in (*function.args.posonlyargs, *function.args.args)]


def edited(node: ast.AST) -> str:
    """The text of what an in-place write changes: the object of the method, ``out=``, the target."""
    if isinstance(node, ast.Call):
        out = next((keyword.value for keyword in node.keywords if keyword.arg == "out"), None)
        if out is not None:
            return code_of(out)
        return code_of(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    if isinstance(node, ast.AugAssign):
        return code_of(node.target)
    return code_of(node.value) if isinstance(node, ast.Subscript) else ""


def loaded(scope: ast.AST) -> set[str]:
    """Every name that is read below ``scope``."""
    return {n.id for n in walk(scope) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


# -- what was saved ----------------------------------------------------------------------------------------------------


def complete(analysis: Analysis) -> bool:
    """Whether the log holds all that forward does with its receiver: nothing was cut short or handed to unseen code."""
    return not analysis.machine.exhausted and not any(e.phase == "forward" for e in analysis.log.escapes)


def saves(log: ReceiverLog) -> list[Save]:
    """The calls of ``save_for_backward`` in forward and setup_context, each place once."""
    found: dict[int, Save] = {}
    for save in log.saves:
        if save.phase == "forward" and save.api == "save_for_backward":
            found[id(save.node)] = save
    return list(found.values())


def count(save: Save) -> int | None:
    """How many tensors a call saves, None when a star hides it."""
    return None if any("starred" in value.tags for value in save.values) else len(save.values)


def own_roots(value: Value) -> frozenset[str]:
    """Storages of inputs and of what forward made; not those of constants, parameters and state."""
    return frozenset(r for r in carried(value).roots if r[0] == "n" or (r[:2] == "p:" and not r.startswith("p:self.")))


def home_made(analysis: Analysis) -> bool:
    """Whether the type's ``apply`` is the project's own: what it puts on the receiver, and wants back, only it knows."""
    info = analysis.unit.info
    if info is None:
        return False
    machine = analysis.machine
    owners = machine.mro(info)
    return any("apply" in owner.members for owner in owners) and all(
        last_name(base) in ("object", "ABC") or machine.base_class(base, owner) is not None
        for owner in owners
        for base in owner.node.bases
    )


# -- where saved_tensors goes ------------------------------------------------------------------------------------------


class Unpacking:
    """One use of ``saved_tensors``: ``targets`` of a tuple assignment, ``index`` of an item, or neither (``whole``)."""

    __slots__ = ("event", "index", "targets")

    def __init__(self, event: Read, targets: list[ast.expr] | None = None, index: int | None = None) -> None:
        self.event = event
        self.targets = targets
        self.index = index

    @property
    def whole(self) -> bool:
        """Whether it is used in a way that says nothing about single tensors."""
        return self.targets is None and self.index is None


def unpackings(log: ReceiverLog) -> list[Unpacking]:
    """Every use of what was saved, each place in the source once."""
    found: dict[int, list[Unpacking]] = {}
    for event in log.unpacks:
        if event.phase == "backward" and id(event.node) not in found:
            found[id(event.node)] = list(_uses(event))
    return [use for uses in found.values() for use in uses]


def _uses(event: Read) -> Iterator[Unpacking]:
    scope = event.scope
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield Unpacking(event)
        return
    for statement in statements(scope.body):
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is event.node:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                if isinstance(target, (ast.Tuple, ast.List)):
                    yield Unpacking(event, list(target.elts))
                elif isinstance(target, ast.Name) and target.id == "_":
                    yield Unpacking(event)  # unpacked for the check of versions alone
                elif isinstance(target, ast.Name):
                    yield from _through_name(event, scope, target.id)
                else:
                    yield Unpacking(event)
            return
    above = parents(scope)
    yield _indexed(event, event.node, above.get(event.node))


def _through_name(event: Read, scope: FunctionNode, name: str) -> Iterator[Unpacking]:
    """``saved = ctx.saved_tensors``: the uses of the name, which must be bound only there."""
    above = parents(scope)
    nodes = [n for n in walk(scope) if isinstance(n, ast.Name) and n.id == name]
    if sum(isinstance(n.ctx, ast.Store) for n in nodes) != 1:
        yield Unpacking(event)
        return
    for node in nodes:
        if isinstance(node.ctx, ast.Load):
            parent = above.get(node)
            if isinstance(parent, ast.Assign) and parent.value is node and len(parent.targets) == 1:
                target = parent.targets[0]
                whole = not isinstance(target, (ast.Tuple, ast.List))
                yield Unpacking(event, None if whole else list(target.elts))  # type: ignore[attr-defined]
            else:
                yield _indexed(event, node, parent)


def _indexed(event: Read, node: ast.AST, parent: ast.AST | None) -> Unpacking:
    if isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.ctx, ast.Load):
        key = parent.slice
        if isinstance(key, ast.UnaryOp) and isinstance(key.op, ast.USub) and isinstance(key.operand, ast.Constant):
            if isinstance(key.operand.value, int):
                return Unpacking(event, index=-key.operand.value)
        if isinstance(key, ast.Constant) and isinstance(key.value, int):
            return Unpacking(event, index=key.value)
    return Unpacking(event)
