"""Live ranges of forward's local tensors: who owns which storage until when, and what is allocated meanwhile."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from cachelint.checks import TypeContext
from cachelint.collect.log import Allocation, Binding
from cachelint.index.module import FunctionNode
from cachelint.index.walk import last_name, walk
from cachelint.infer.values import BUFFER, CHEAP, CONST, DEVICE, PERSIST, Seq, carried

JOINS = frozenset(("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack"))


@dataclass(frozen=True, slots=True)
class Owners:
    """Names that together own storages past their last use.

    ``last`` is the unit of forward's body that uses them last, ``later`` the first large allocation after it, ``join``
    the call of cat or stack that copied them, if that was the last use.
    """

    names: tuple[str, ...]
    first: Binding
    last: ast.stmt
    later: Allocation
    join: ast.Call | None


def owners(context: TypeContext) -> Iterator[Owners]:
    """Every group of local names whose storages outlive their last use over a later large allocation."""
    known = context.analysis.machine.lifetimes
    if known is None:
        known = context.analysis.machine.lifetimes = list(_owners(context))
    yield from known


def _owners(context: TypeContext) -> Iterator[Owners]:
    unit = context.analysis.unit
    log = context.analysis.log
    if unit.trainer or not log.allocations or not any(carried(b.value).kinds & DEVICE for b in log.bindings):
        return
    for method in (*unit.forward, *unit.setup):
        if method.module is unit.module:
            yield from _Ranges(context, method.node).groups()


class _Ranges:
    def __init__(self, context: TypeContext, node: FunctionNode) -> None:
        self.log = context.analysis.log
        self.machine = context.analysis.machine
        self.units = list(_flat(node.body))
        self.place = {id(inner): index for index, unit in enumerate(self.units) for inner in _statements(unit)}
        self.loads: dict[str, list[int]] = {}
        self.rebound: dict[str, list[int]] = {}
        self.nested: set[str] = set()
        for index, unit in enumerate(self.units):
            self._names(unit, index)

    def _names(self, unit: ast.AST, index: int) -> None:
        for item in walk(unit):
            if isinstance(item, ast.Name):
                table = self.loads if isinstance(item.ctx, ast.Load) else self.rebound
                table.setdefault(item.id, []).append(index)
            elif isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                self.nested.update(n.id for n in walk(item) if isinstance(n, ast.Name))

    def groups(self) -> Iterator[Owners]:
        """Groups of names by shared storage, those joined by one cat together."""
        found: list[Owners] = []
        kept = self._kept()
        for members in self._by_storage():
            owner = self._outlives(members, kept)
            if owner is not None:
                found.append(owner)
        joined: dict[int, list[Owners]] = {}
        for owner in found:
            if owner.join is None:
                yield owner
            else:
                joined.setdefault(id(owner.join), []).append(owner)
        for together in joined.values():
            names = tuple(name for owner in together for name in owner.names)
            first = together[0]
            yield Owners(names, first.first, first.last, first.later, first.join)

    def _kept(self) -> frozenset[str]:
        """Storages that something else keeps anyway: returned, saved, on the receiver."""
        roots: set[str] = set()
        for returned in self.log.returns:
            if returned.phase == "forward":
                roots |= carried(returned.value).roots
        for save in self.log.saves:
            for value in save.values:
                roots |= carried(value).roots
        for write in self.log.writes:
            roots |= carried(write.value).roots
        return frozenset(roots)

    def _by_storage(self) -> list[list[Binding]]:
        """Local names with storage of their own, views of one storage together, in the order of binding."""
        groups: list[tuple[set[str], list[Binding]]] = []
        for binding in self.log.bindings:
            if id(binding.statement) not in self.place:
                continue
            value = carried(binding.value)
            if not value.kinds & DEVICE or not value.roots:
                continue
            home = next((g for g in groups if g[0] & value.roots), None)
            if home is None:
                groups.append((set(value.roots), [binding]))
            else:
                home[0].update(value.roots)
                home[1].append(binding)
        return [members for _, members in groups]

    def _outlives(self, members: list[Binding], kept: frozenset[str]) -> Owners | None:
        names = tuple(dict.fromkeys(b.name for b in members))
        roots = frozenset().union(*(carried(b.value).roots for b in members))
        if roots & kept or not all(root.startswith("n") for root in roots):
            return None
        if any(not self._is_large(b) for b in members) or any(name in self.nested for name in names):
            return None
        if any(isinstance(b.value.ref, Seq) for b in members):
            return None  # a list holds them: releasing the names frees nothing
        first = min(self.place[id(b.statement)] for b in members)
        if any(not isinstance(self.units[self.place[id(b.statement)]], _SIMPLE) for b in members):
            return None
        uses = [index for name in names for index in self.loads.get(name, ()) if index > first]
        if not uses:
            return None
        last = max(uses)
        # Bound again or deleted after the last use, before the allocation: the old storage is free by then.
        again = [i for name in names for i in self.rebound.get(name, ()) if i >= last and i != first]
        later = self._later(last, min(again, default=len(self.units) + 1))
        if later is None or not isinstance(self.units[last], _SIMPLE):
            return None
        join = self._join(self.units[last], names)
        if join is None and all(self._is_constant(b) for b in members):
            return None
        return Owners(names, members[0], self.units[last], later, join)

    def _is_large(self, binding: Binding) -> bool:
        value = carried(binding.value)
        return "small" not in value.tags and value.cost != PERSIST and value.cost in _OWN

    def _is_constant(self, binding: Binding) -> bool:
        # An arange or a table of zeros is most often small; joined by cat it counts with its group.
        return self.machine.true_cost(carried(binding.value)) == CONST

    def _later(self, last: int, end: int) -> Allocation | None:
        for allocation in self.log.allocations:
            index = self.place.get(id(allocation.statement))
            if index is not None and last < index <= end and "small" not in allocation.value.tags:
                if allocation.what.endswith(_NO_ALLOCATION):
                    continue
                if allocation.value.cost in (CONST, BUFFER, CHEAP) or allocation.value.cost > BUFFER:
                    return allocation
        return None

    def _join(self, statement: ast.stmt, names: tuple[str, ...]) -> ast.Call | None:
        for item in walk(statement):
            if isinstance(item, ast.Call) and last_name(item.func) in JOINS and item.args:
                parts = {n.id for n in walk(item.args[0]) if isinstance(n, ast.Name)}
                if parts & set(names):
                    return item
        return None


# In-place writers allocate nothing, a mask is a fraction of its operands, and unseen code may only wait.
_NO_ALLOCATION = ("whose code is not here", "writes it", "a comparison", "wait_tensor: a collective")
_OWN = frozenset(range(CONST, 16))
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The body's statements, those of `with` blocks in line: what stands in a branch or a loop stays one unit."""
    for statement in body:
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            yield from _flat(statement.body)
        else:
            yield statement


def _statements(unit: ast.stmt) -> Iterator[ast.AST]:
    for item in walk(unit):
        if isinstance(item, ast.stmt):
            yield item
