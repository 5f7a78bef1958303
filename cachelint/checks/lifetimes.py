"""Live ranges of forward's local tensors: who owns which storage until when, and what is allocated meanwhile."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from cachelint.checks import TypeContext
from cachelint.checks.extents import FULL, JOINS, SMALL, UNSURE, Extents
from cachelint.checks.support import statements
from cachelint.collect.log import Allocation, Binding
from cachelint.index.module import FunctionNode
from cachelint.index.walk import last_name, walk
from cachelint.infer.values import BUFFER, CHEAP, CONST, DEVICE, PERSIST, Seq, carried


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class _Storage:
    """One storage of forward: its size, the units of forward's body between which it is alive, and who could release it."""

    size: int
    begin: int
    end: int
    owner: Owners | None = None
    last: int = 0


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
        self.node = node
        self.units = list(_flat(node.body))
        self.place = {id(inner): index for index, unit in enumerate(self.units) for inner in _statements(unit)}
        self.loads: dict[str, list[int]] = {}
        self.rebound: dict[str, list[int]] = {}
        self.nested: set[str] = set()
        self.wrapped: set[str] = set()  # handed to a constructor: the object may hold them
        self.known: list[dict[str, int]] = []
        self.sure: list[int] = []  # large tensors that a unit surely holds at one time, beside the named ones
        self.most: list[int] = []  # the same with all that may be large

    def _read(self) -> None:
        """What the text says of names and sizes."""
        busy = {self.place.get(id(a.statement)) for a in self.log.allocations}
        extents = Extents(self.node)
        for index, unit in enumerate(self.units):
            self._names(unit, index)
            self.sure.append(extents.peak(unit, 0) if index in busy else 0)
            self.most.append(extents.peak(unit, 1) if index in busy else 0)
            extents.learn(unit)
            self.known.append(dict(extents.names))

    def _names(self, unit: ast.AST, index: int) -> None:
        for item in walk(unit):
            if isinstance(item, ast.Name):
                table = self.loads if isinstance(item.ctx, ast.Load) else self.rebound
                table.setdefault(item.id, []).append(index)
            elif isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                self.nested.update(n.id for n in walk(item) if isinstance(n, ast.Name))
            elif isinstance(item, ast.Call) and _constructs(last_name(item.func)):
                self.wrapped.update(n.id for n in _arguments(item) if isinstance(n, ast.Name))

    def groups(self) -> Iterator[Owners]:
        """Groups of names by shared storage, those joined by one cat together, whose release would lower the peak."""
        storages: list[_Storage] = []
        joined: dict[int, list[_Storage]] = {}
        kept = self._kept()
        groups = self._by_storage()
        if not any(self._promising(members, kept) for members in groups):
            return  # the usual case, told without reading forward's text
        self._read()
        for members in groups:
            storage = self._storage(members, kept)
            owner = storage.owner
            if owner is None or owner.join is None:
                storages.append(storage)
            else:
                joined.setdefault(id(owner.join), []).append(storage)
        for together in joined.values():
            firsts = [s.owner for s in together if s.owner is not None]
            names = tuple(name for owner in firsts for name in owner.names)
            owner = Owners(names, firsts[0].first, firsts[0].last, firsts[0].later, firsts[0].join)
            begin, end = min(s.begin for s in together), min(s.end for s in together)
            storages.append(_Storage(FULL, begin, end, owner, together[0].last))
        for storage in storages:
            if storage.owner is not None and storage.size == FULL:
                if self._raises(storage, storages, False) or self._raises(storage, storages, True):
                    yield storage.owner

    def _raises(self, storage: _Storage, storages: list[_Storage], alone: bool) -> bool:
        """Whether the peak lies where the storage is owned for nothing.

        Either as the code stands, so that it is enough to release this one, or (``alone``) once all the others are
        released in time. Large tensors are counted, as if all were of one size; what may be large counts against it.
        """
        wasted = [i for i in range(storage.last + 1, min(storage.end, len(self.units) - 1) + 1) if self.sure[i]]
        if not wasted:
            return False
        sure = self._alive(storage, storages, FULL, alone)
        there = max(self.sure[i] + sure[i] for i in wasted) + 1
        most = self._alive(storage, storages, UNSURE, alone)
        before = [i for i in range(len(self.units)) if i <= storage.last or i > storage.end]
        elsewhere = max((self.most[i] + most[i] for i in before), default=0)
        return there > elsewhere

    def _alive(self, but: _Storage, storages: list[_Storage], floor: int, released: bool) -> list[int]:
        """How many storages are alive before each unit binds anything; ``released``: those that can be end with their last use.

        One that may be large counts where it is alive at the last use too, so that it is on both sides of the comparison.
        """
        units = len(self.units)
        changes = [0] * (units + 1)
        for other in storages:
            if other is but:
                if floor != UNSURE:
                    continue
                begin, end = other.begin, units  # where it is in use
            elif other.size >= (UNSURE if other.begin < but.last else floor):
                begin, end = other.begin, other.last if released and other.owner is not None else other.end
            else:
                continue
            if begin < min(end, units):
                changes[begin + 1] += 1
                if end < units:
                    changes[end + 1] -= 1
        return list(accumulate(changes[:units]))

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

    def _storage(self, members: list[Binding], kept: frozenset[str]) -> _Storage:
        names = tuple(dict.fromkeys(b.name for b in members))
        places = [self.place[id(b.statement)] for b in members]
        size = max(self.known[place].get(b.name, UNSURE) for place, b in zip(places, members, strict=True))
        if any("small" in carried(b.value).tags for b in members):
            size = SMALL
        roots = frozenset().union(*(carried(b.value).roots for b in members))
        first = min(places)
        if not all(root.startswith("n") for root in roots):
            return _Storage(SMALL, first, -1)  # an input, or state: alive before and after
        if roots & kept:
            return _Storage(size, first, len(self.units))
        uses = [index for name in names for index in self.loads.get(name, ()) if index > first]
        last = max(uses, default=first)
        # Bound again or deleted after the last use, before the allocation: the old storage is free by then.
        again = [i for name in names for i in self.rebound.get(name, ()) if i >= last and i != first]
        end = min(again, default=len(self.units))
        owner = self._owner(members, names, places, last, end) if uses else None
        return _Storage(size, first, end, owner, last)

    def _promising(self, members: list[Binding], kept: frozenset[str]) -> bool:
        """Whether one group of names may have an owner, by what it costs little to ask."""
        first = min(self.place[id(b.statement)] for b in members)
        return (
            all(self._is_large(b) and not isinstance(b.value.ref, Seq) for b in members)
            and all(isinstance(self.units[self.place[id(b.statement)]], _SIMPLE) for b in members)
            and all(r.startswith("n") and r not in kept for b in members for r in carried(b.value).roots)
            and any(self.place.get(id(a.statement), -1) > first for a in self.log.allocations)
        )

    def _owner(
        self, members: list[Binding], names: tuple[str, ...], places: list[int], last: int, end: int
    ) -> Owners | None:
        if any(not self._is_large(b) for b in members) or not (self.nested | self.wrapped).isdisjoint(names):
            return None
        if any(isinstance(b.value.ref, Seq) for b in members):
            return None  # a list holds them: releasing the names frees nothing
        if any(not isinstance(self.units[place], _SIMPLE) for place in places):
            return None
        later = self._later(last, end)
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
            if index is not None and last < index <= end and self.sure[index] and "small" not in allocation.value.tags:
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
_NO_ALLOCATION: Final = ("whose code is not here", "writes it", "a comparison", "wait_tensor: a collective")
_OWN: Final = frozenset(range(CONST, 16))
_SIMPLE: Final = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)


def _constructs(name: str) -> bool:
    """Whether a callee's name is that of a class, or of a function that puts tensors into an object."""
    return name[:1].isupper() or name.startswith(("make_", "wrap", "from_"))


def _arguments(call: ast.Call) -> Iterator[ast.expr]:
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        if isinstance(argument, (ast.Tuple, ast.List)):
            yield from argument.elts
        else:
            yield argument.value if isinstance(argument, ast.Starred) else argument


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The body's statements, those of `with` blocks in line: what stands in a branch or a loop stays one unit."""
    for statement in body:
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            yield from _flat(statement.body)
        else:
            yield statement


def _statements(unit: ast.stmt) -> Iterator[ast.stmt]:
    """A statement and those inside it, without those of nested functions."""
    return statements([unit])
