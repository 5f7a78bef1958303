"""What every part of the abstract machine works on: frames, symbols, events, and values made of others.

The machine is one class, written as a chain: each module of this package adds a link that leans on those before it, and
:class:`~cachelint.infer.machine.Machine` is the last. What an earlier link asks of a later one is declared here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from cachelint.collect.log import (
    Allocation,
    Outside,
    Path,
    Read,
    ReceiverLog,
)
from cachelint.index.module import ClassInfo, FunctionNode, ModuleInfo, empty_class
from cachelint.index.project import Project
from cachelint.index.walk import code_of
from cachelint.infer.symbols import STRONG, Outcome, Symbol
from cachelint.infer.values import (
    CHEAP,
    CONST,
    DEVICE,
    EXPENSIVE,
    HIGH,
    HOST,
    LIVE,
    LOW,
    NONE,
    NONE_VALUE,
    OPAQUE,
    PERSIST,
    SAVED,
    UNKNOWN,
    Func,
    Inst,
    Seq,
    Value,
    Why,
    carried,
    join,
    replace,
)

MAX_DEPTH: Final = 9
MAX_STEPS: Final = 60_000
HELPER_STEPS: Final = 4_000
"""Statements after which helpers that don't see the receiver are no longer followed."""


class Exhausted(Exception):
    """The step budget of one type is used up."""


@dataclass
class Frame:
    """One activation of a function: its names and what it returned."""

    env: dict[str, Value]
    module: ModuleInfo
    name: str
    owner: ClassInfo | None = None
    closure: Frame | None = None
    returns: list[Value] = field(default_factory=list)
    yields: list[Value] = field(default_factory=list)
    depth: int = 0
    loops: int = 0
    self_name: str = ""
    generator: bool = False
    globals: set[str] = field(default_factory=set)
    node: ast.AST | None = None
    told: bool = False
    """Whether ``env`` holds, as ``name.attribute``, what a test has shown of an object's attribute."""

    def find(self, name: str) -> Value | None:
        """What a nested function sees under a name: it is asked for as it stands now, in the nearest scope first."""
        scope: Frame | None = self
        while scope is not None:
            found = scope.env.get(name)
            if found is not None:
                return found
            scope = scope.closure
        return None


OUTSIDE: Final = empty_class("object", "<outside>")
"""The class of objects whose own is not here."""

_SMALL: Final = frozenset(("small",))
_MULTI: Final = frozenset(("multi",))
_TAINTS: Final = frozenset(("child",))


class Core:
    """Shared by all links."""

    def __init__(self, project: Project, settled: dict[str, Outcome] | None = None) -> None:
        self.project = project
        self.settled = settled or {}
        self.symbols: dict[str, Symbol] = {}
        self.frame = Frame({}, OUTSIDE.module, "")
        self.log = ReceiverLog(frozenset(), frozenset(), frozenset())
        self.receiver_class: ClassInfo | None = None
        self.heap: dict[str, Value] = {}
        self.steps = 0
        self.depth_limit = MAX_DEPTH
        self.helper_steps = HELPER_STEPS
        self.order = 0
        self.counter = 0
        self.storages = 0
        """How many storages were made when forward had ended."""
        self.path: Path = ()
        self.guards: tuple[str, ...] = ()
        self.stack: list[int] = []
        self.module_values: dict[tuple[str, str], Value | None] = {}
        self.class_attrs: dict[tuple[int, str], Value] = {}
        self.exhausted = False
        self.captures: list[tuple[str, str, Value]] = []
        self.call_hook: dict[int, list[tuple[list[Value], dict[str, Value]]]] = {}
        self.memo: dict[object, Value] = {}
        self.looked: set[tuple[int, str]] = set()
        self.mros: dict[int, list[ClassInfo]] = {}
        self.receiver_is_self = False
        self.statement: ast.stmt | None = None
        self.lifetimes: list[Any] | None = None
        self.dialect_bases: frozenset[str] = frozenset()
        self.tensor_classes: dict[str, ClassInfo] = {}
        """The class of the project that a parameter that is a tensor is annotated with."""
        self.answers: dict[int, Value] = {}
        """What functions return that have been interpreted already, by the id of their node."""
        self.owned: dict[int, str] = {}
        """The attribute that each container made by the constructor belongs to, by the container's id."""

    # -- what later links answer ---------------------------------------------------------------------------------------

    def eval(self, node: ast.expr) -> Value:
        """The value of an expression."""
        raise NotImplementedError

    def attribute(self, base: Value, name: str, node: ast.AST) -> Value:
        """``base.name``."""
        raise NotImplementedError

    def argument_evidence(self, dotted: str, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> None:
        """What an operator demands of its arguments."""
        raise NotImplementedError

    def call(
        self, func: Value, args: list[Value], kwargs: dict[str, Value], node: ast.Call, star: bool = False
    ) -> Value:
        """What a call returns."""
        raise NotImplementedError

    def call_function(
        self, func: Func, args: list[Value], kwargs: dict[str, Value], node: ast.AST, star: bool = False
    ) -> Value:
        """What a function of the project returns for these arguments."""
        raise NotImplementedError

    def run(
        self,
        node: FunctionNode | ast.Lambda,
        module: ModuleInfo,
        env: dict[str, Value],
        *,
        owner: ClassInfo | None = None,
        closure: Frame | None = None,
        name: str = "",
        self_name: str = "",
        entry: bool = False,
    ) -> Value:
        """What a body returns, with its parameters bound."""
        raise NotImplementedError

    def assign(self, target: ast.expr, value: Value, node: ast.AST, augmented: bool = False) -> None:
        """Bind ``value`` to a target of any form."""
        raise NotImplementedError

    # -- symbols and events --------------------------------------------------------------------------------------------

    def symbol(
        self,
        name: str,
        kind: str,
        label: str,
        frame_or_module: ModuleInfo,
        line: int,
        *,
        deps: frozenset[str] | None = None,
        cost: int = LIVE,
        prior: int = 0,
        optional: bool = False,
    ) -> Value:
        """A value that nothing here decides: unknown on the first pass, what the evidence showed on the second."""
        known = self.symbols.get(name)
        if known is None:
            known = Symbol(name, kind, label, frame_or_module.path, line, optional=optional, prior=prior)
            self.symbols[name] = known
        known.optional |= optional
        own = frozenset((name,))
        deps = own if deps is None else deps
        roots = frozenset((f"p:{name}",))
        outcome = self.settled.get(name)
        if outcome is None or not outcome.kinds:
            sure = LOW
            kinds = UNKNOWN | (NONE if known.optional else 0)
            return Value(kinds, cost, deps, roots, name, None, outcome.why if outcome else None, sure)
        return decided(Value(outcome.kinds, cost, deps, roots, name), outcome)

    def note(self, value: Value, side: int, strength: int, node: ast.AST, text: str) -> None:
        """Evidence about the symbol that ``value`` is, if it is one."""
        if value.param is not None and "tested" not in value.tags:
            symbol = self.symbols.get(value.param)
            if symbol is not None:
                known = symbol.best.get(side)
                if known is None or known[0] < strength:
                    symbol.note(side, strength, Why(self.frame.module.path, getattr(node, "lineno", 0), text))

    def fresh(self) -> frozenset[str]:
        """A new storage root."""
        self.counter += 1
        return frozenset((f"n{self.counter}",))

    def allocated(self, value: Value, what: str) -> Value:
        """Note that a statement of forward makes a tensor with storage of its own."""
        if self.statement is not None and self.log.phase == "forward" and value.kinds & DEVICE:
            self.log.allocations.append(Allocation(self.statement, value, what, self.tick()))
        return value

    def tick(self) -> int:
        """The next event number."""
        self.order += 1
        return self.order

    def why(self, node: ast.AST, text: str, before: Why | None = None) -> Why:
        """A link of evidence at ``node``."""
        return Why(self.frame.module.path, getattr(node, "lineno", 0), text, before)

    def outside(self, name: str, node: ast.AST, value: Value | None = None) -> Outside:
        """Something shared by every call is written or read at ``node``."""
        log = self.log
        return Outside(name, node, value, self.frame.module.path, self.frame.name, log.phase, self.tick(), self.path)

    def event(self, name: str, node: ast.AST, unset: bool = False, sure: bool = True) -> Read:
        """A read-like event at ``node``."""
        return Read(
            name,
            node,
            self.frame.module.path,
            self.frame.name,
            self.log.phase,
            self.tick(),
            self.path,
            unset,
            sure,
            self.frame.node,
        )

    def made(
        self,
        node: ast.AST,
        what: str,
        args: tuple[Value, ...],
        floor: int,
        kinds: int | None = None,
        small: bool = False,
    ) -> Value:
        """A new value computed from ``args``: device if any of them is, at least as costly as any, own storage."""
        cost = floor
        deps: frozenset[str] = frozenset()
        seen = 0
        why: Why | None = None
        sure = HIGH
        tags: frozenset[str] = frozenset()
        always_small, small = small, False
        for arg in args:
            value = arg
            if isinstance(arg.ref, (Seq, Inst)):
                value = carried(arg)
            deps = deps | value.deps if value.deps else deps
            part = value.kinds & (DEVICE | UNKNOWN)
            if part:
                small = "small" in value.tags and (small or not seen)
                seen |= part
                actual = self.true_cost(value)
                # What a parameter, a workspace or a constant holds is still at hand when backward runs.
                if actual > cost and actual != PERSIST and floor < EXPENSIVE:
                    cost, why = actual, value.why
                sure = min(sure, value.sure) if value.kinds & UNKNOWN else sure
                if "foreign-only" not in value.tags and value.tags & _TAINTS:
                    tags |= value.tags & _TAINTS
                if why is None:
                    why = value.why
        if kinds is None:
            # Device wins: an unknown operand beside a tensor still gives a tensor.
            kinds = DEVICE if seen & DEVICE else UNKNOWN if seen else HOST
        if kinds == HOST:
            return Value(HOST, deps=deps, why=why, sure=sure)
        if (always_small or small) and kinds & DEVICE and floor == CHEAP:
            tags |= _SMALL
        made = Value(
            kinds,
            cost,
            deps,
            self.fresh(),
            None,
            None,
            self.why(node, what, why),
            HIGH if kinds & DEVICE else sure,
            tags,
        )
        return self.allocated(made, what)

    def true_cost(self, value: Value) -> int:
        """The cost of a value, with what its buffers were filled with."""
        cost = value.cost
        if self.heap:
            for root in value.roots:
                content = self.heap.get(root)
                if content is not None:
                    cost = max(CONST if cost == SAVED else cost, content.cost)
        if cost == SAVED:  # a buffer nobody filled
            return CONST
        return cost

    def tensor_use(self, base: Value, node: ast.AST, text: str, strength: int = STRONG) -> None:
        """Something only a tensor or an array has is used."""
        if base.param is not None:
            symbol = self.symbols.get(base.param)
            if symbol is not None:
                symbol.tensor_use += 1
            self.note(base, DEVICE, strength, node, text)

    def positions(self, value: Value, count: int | None) -> list[Value] | None:
        """The items of a value by position, where they are known."""
        ref = value.ref
        if isinstance(ref, Seq):
            if ref.items is not None and ref.rest is None:
                return ref.items
            if ref.variants and count is not None:
                return next((items for items in ref.variants if len(items) == count), None)
            return None
        if isinstance(ref, Inst) and ref.info and count is not None and len(ref.attrs) == count:
            from cachelint.infer.annotations import is_record

            if is_record(ref.info):
                return list(ref.attrs.values())
        return None

    def element_of(self, value: Value, node: ast.AST) -> Value:
        """One item of a value that is iterated or unpacked without known positions."""
        ref = value.ref
        if isinstance(ref, Seq):
            element = ref.element()
            return element if element is not None else NONE_VALUE
        if "shape" in value.tags or value.kinds == HOST:
            return Value(HOST, deps=value.deps, why=value.why, sure=value.sure)
        if value.param is not None and f"{value.param}[]" in self.settled:
            return self.item_symbol(value, node)
        if value.kinds & DEVICE:
            return replace(value, param=None, kinds=value.kinds & ~NONE)
        if value.kinds & UNKNOWN and value.param is not None:
            return self.item_symbol(value, node)
        return replace(value, param=None, kinds=(value.kinds & ~NONE) or UNKNOWN)

    def item_symbol(self, value: Value, node: ast.AST, position: int | str | None = None) -> Value:
        """The items of an unknown container: a symbol for each known place, one for the others together."""
        assert value.param is not None
        owner = self.symbols.get(value.param)
        place = "" if position is None else str(position)
        item = self.symbol(
            f"{value.param}[{place}]",
            "item",
            f"an item of `{value.param}`",
            self.frame.module,
            getattr(node, "lineno", 0),
            deps=value.deps,
            cost=value.cost,
            prior=owner.prior if owner is not None else 0,
        )
        if value.cost < OPAQUE:
            return item
        return replace(item, roots=frozenset(f"{root}#{place}" for root in value.roots), why=value.why)

    def result_part(self, base: Value, position: int, node: ast.AST) -> Value:
        """One of the results of an operator that returns several: each has its own storage."""
        roots = frozenset(f"{root}#{position}" for root in base.roots)
        return replace(base, roots=roots, param=None, ref=None, tags=base.tags - _MULTI)

    def snapshot(self) -> tuple[dict[str, Value], dict[str, Value]]:
        """Copies of the local names and of the receiver's attributes."""
        return dict(self.frame.env), dict(self.log.attrs)

    def restore(self, state: tuple[dict[str, Value], dict[str, Value]]) -> None:
        """Go back to a snapshot."""
        self.frame.env = dict(state[0])
        self.log.attrs = dict(state[1])

    def merge(self, other: tuple[dict[str, Value], dict[str, Value]]) -> None:
        """Join the present state with another path's."""
        self.frame.env = _merge(self.frame.env, other[0], missing=None)
        self.log.attrs = _merge(self.log.attrs, other[1], missing="maybe-unset")


def _merge(mine: dict[str, Value], other: dict[str, Value], missing: str | None) -> dict[str, Value]:
    if mine is other:
        return mine
    result = dict(mine)
    for name, value in other.items():
        own = mine.get(name)
        if own is None and missing is None and "." in name:
            continue  # what a test showed on one path only
        if own is None:
            result[name] = value if missing is None else value.tagged(missing)
        elif own is not value:
            result[name] = join(own, value)
    for name, value in mine.items():
        if name not in other:
            if missing is not None:
                result[name] = value.tagged(missing)
            elif "." in name:
                del result[name]
    return result


def decided(value: Value, outcome: Outcome) -> Value:
    """A symbol's value once its evidence is weighed: what holds no tensor has no storage either."""
    tags = value.tags | {"handle"} if outcome.handle else value.tags
    if outcome.foreign_only:
        tags |= {"foreign-only"}
    return Value(
        outcome.kinds,
        value.cost,
        value.deps,
        value.roots if outcome.kinds & DEVICE else frozenset(),
        value.param,
        None,
        outcome.why,
        outcome.sure,
        tags,
    )


def join_deps(values: Iterable[Value]) -> frozenset[str]:
    """All parameters that any of the values depends on."""
    result: frozenset[str] = frozenset()
    for value in values:
        if value.deps and value.deps is not result:
            result |= value.deps
    return result


def _text(node: ast.expr) -> str:
    text = code_of(node)
    return text if len(text) <= 40 else text[:37] + "..."
