"""The abstract machine: frames, names, statements. Expressions and calls are in the modules beside it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cachelint.collect.log import Allocation, Binding, Exit, Mutation, Outside, Path, Read, ReceiverLog, Returned, Write
from cachelint.index.module import ClassInfo, FunctionNode, ModuleInfo, class_info
from cachelint.index.project import Project
from cachelint.index.walk import walk
from cachelint.infer.annotations import Reader
from cachelint.infer.calls import Calls
from cachelint.infer.expressions import Expressions, defaults
from cachelint.infer.optable import operators
from cachelint.infer.places import Places, part_of
from cachelint.infer.symbols import DECISIVE, Outcome, Symbol
from cachelint.infer.values import (
    CHEAP,
    CONST,
    DEVICE,
    HOST,
    LIVE,
    LOW,
    NONE,
    NONE_VALUE,
    OPAQUE,
    PERSIST,
    UNKNOWN,
    WORKSPACE,
    Cls,
    Const,
    Ext,
    Func,
    Inst,
    Mod,
    Recv,
    Seq,
    Value,
    Why,
    carried,
    external,
    join,
    join_all,
    replace,
)

MAX_DEPTH = 9
MAX_STEPS = 60_000
HELPER_STEPS = 4_000
"""Statements after which helpers that don't see the receiver are no longer followed."""


class Exhausted(Exception):
    """The step budget of one type is used up."""


@dataclass(slots=True)
class Frame:
    """One activation of a function: its names and what it returned."""

    env: dict[str, Value]
    module: ModuleInfo
    name: str
    owner: ClassInfo | None = None
    closure: dict[str, Value] | None = None
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


class Machine(Expressions, Calls, Places):
    """Interprets the forward and backward of one type.

    ``settled`` holds the outcome of symbols from an earlier pass; the first pass has none.
    """

    def __init__(self, project: Project, settled: dict[str, Outcome] | None = None) -> None:
        self.project = project
        self.settled = settled or {}
        self.symbols: dict[str, Symbol] = {}
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

    # -- symbols -----------------------------------------------------------------------------------------------------

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

    # -- running functions ---------------------------------------------------------------------------------------------

    frame: Frame

    def run(
        self,
        node: FunctionNode | ast.Lambda,
        module: ModuleInfo,
        env: dict[str, Value],
        *,
        owner: ClassInfo | None = None,
        closure: dict[str, Value] | None = None,
        name: str = "",
        self_name: str = "",
        entry: bool = False,
    ) -> Value:
        """Interpret a body with its parameters bound; the join of what it returns."""
        if not entry and (len(self.stack) >= MAX_DEPTH or id(node) in self.stack):
            return Value(UNKNOWN, OPAQUE, join_deps(env.values()), sure=LOW)
        before = getattr(self, "frame", None)
        frame = Frame(env, module, name or getattr(node, "name", "lambda"), owner, closure)
        frame.self_name = self_name
        frame.node = node
        frame.depth = len(self.stack)
        if entry:
            self.log.entries.append((self.order, self.log.phase, frame.name))
        self.frame = frame
        self.stack.append(id(node))
        path = self.path
        guards = self.guards
        try:
            if isinstance(node, ast.Lambda):
                return self.eval(node.body)
            ended = self.block(node.body)
            if frame.generator:
                return Value(HOST, ref=Seq(None, join_all(frame.yields)))
            if entry and not ended and self.log.phase == "forward":
                self.exit(node)
            if not ended and frame.returns:
                frame.returns.append(NONE_VALUE)
            result = join_all(frame.returns)
            return NONE_VALUE if result is None else result
        finally:
            self.path = path
            self.guards = guards
            self.stack.pop()
            if before is not None:
                self.frame = before

    # -- names -------------------------------------------------------------------------------------------------------

    def name(self, name: str, node: ast.AST) -> Value:
        """The value of a bare name: local, closed over, of the module, or a builtin."""
        frame = self.frame
        found = frame.env.get(name)
        if found is not None:
            return found
        if frame.closure is not None:
            found = frame.closure.get(name)
            if found is not None:
                return found
        found = self.global_name(frame.module, name)
        if found is not None:
            if "side-channel" in found.tags:
                self.log.fetches.append(self.outside(name, node))
            return found
        if name in _BUILTINS:
            return external(name)
        # A name of an enclosing function that is not interpreted, or of a module that is not here.
        value = self.symbol(
            f"free {name}", "free", f"the name `{name}`", frame.module, getattr(node, "lineno", 0), deps=frozenset()
        )
        return replace(value, ref=Ext(name))

    def outside(self, name: str, node: ast.AST, value: Value | None = None) -> Outside:
        """Something shared by every call is written or read at ``node``."""
        log = self.log
        return Outside(name, node, value, self.frame.module.path, self.frame.name, log.phase, self.tick(), self.path)

    def global_name(self, module: ModuleInfo, name: str) -> Value | None:
        """The value of a module-level name, None when the module does not bind it."""
        key = (module.path, name)
        if key in self.module_values:
            return self.module_values[key]
        self.module_values[key] = Value(UNKNOWN, sure=LOW)  # a cycle of definitions ends here
        value = self._global(module, name)
        self.module_values[key] = value
        return value

    def _global(self, module: ModuleInfo, name: str) -> Value | None:
        found = self.project.resolve(module, name)
        if found is None:
            return None
        if isinstance(found.binding, ast.expr) and found.module is module:
            best = self._best_alternative(module, name)
            if best is not None:
                return best
        return self.from_resolved(found.binding, found.module, found.dotted, name)

    def _best_alternative(self, module: ModuleInfo, name: str) -> Value | None:
        """Of several module-level assignments (``if torch_has_it: f = torch.ops… else: f = _f``) the one with code."""
        bindings = module.lookup(name)
        if len(bindings) < 2:
            return None
        for binding in bindings:
            if isinstance(binding, (ast.Name, ast.Attribute)):
                value = self.module_expression(binding, module, name)
                if isinstance(value.ref, (Func, Cls)):
                    return value
        return None

    def from_resolved(self, binding: object, module: ModuleInfo | None, dotted: str, name: str) -> Value:
        """The value behind a resolved name."""
        if isinstance(binding, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert module is not None
            own = f"{module.name}.{binding.name}"
            if operators().names(own):
                return Value(HOST, ref=Ext(own))
            return Value(HOST, ref=Func(binding, module, kernel=is_kernel(binding)))
        if isinstance(binding, ClassInfo):
            return Value(HOST, ref=Cls(binding))
        if isinstance(binding, ast.expr) and module is not None:
            return self.module_expression(binding, module, name)
        if module is not None:
            return Value(HOST, ref=Mod(module))
        return external(dotted)

    def module_expression(self, node: ast.expr, module: ModuleInfo, name: str) -> Value:
        """What a module-level assignment binds. Containers and tensors there are shared between calls."""
        if isinstance(node, ast.Constant):
            return NONE_VALUE if node.value is None else Value(HOST, ref=Const(node.value))
        before = getattr(self, "frame", None)
        self.frame = Frame({}, module, "<module>")
        phase, self.log.phase = self.log.phase, "module"
        try:
            value = self.eval(node)
        finally:
            self.log.phase = phase
            if before is not None:
                self.frame = before
        if isinstance(value.ref, Seq):
            value.ref.shared = f"{module.name}.{name}"
        elif value.kinds & DEVICE:
            where = Why(module.path, node.lineno, f"`{name}` is a tensor of the module, shared by every call")
            return Value(
                value.kinds,
                PERSIST,
                roots=frozenset((f"g:{module.path}:{name}",)),
                why=where,
                tags=frozenset(("global",)),
            )
        elif value.param is not None:
            return replace(value, roots=frozenset((f"g:{module.path}:{name}",)))
        return value

    # -- statements --------------------------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> bool:
        """Interpret statements; True when control cannot reach the end."""
        for statement in body:
            if self.frame.depth == 0:
                self.statement = statement
            self.steps += 1
            if self.steps > MAX_STEPS:
                self.exhausted = True
                raise Exhausted
            handler = _STATEMENTS.get(type(statement))
            if handler is not None and handler(self, statement):
                return True
        return False

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

    def do_if(self, node: ast.If) -> bool:
        truth = self.condition(node.test)
        if truth is True:
            self.narrow(node.test, True)
            return self.block(node.body)
        if truth is False:
            self.narrow(node.test, False)
            return self.block(node.orelse)
        before = self.snapshot()
        path, guards = self.path, self.guards
        self.log.branches[id(node)] = node
        self.path = (*path, (id(node), "then"))
        if self.receiver_is_self:
            self.guards = (*guards, *self.guard_fields(node.test))
        self.narrow(node.test, True)
        ended_then = self.block(node.body)
        after_then = self.snapshot()
        self.restore(before)
        self.path = (*path, (id(node), "else"))
        self.narrow(node.test, False)
        ended_else = self.block(node.orelse)
        self.path, self.guards = path, guards
        if ended_then:
            self.log.ended[(id(node), "then")] = _how_it_ends(node.body, self.frame.name)
        if ended_else:
            self.log.ended[(id(node), "else")] = _how_it_ends(node.orelse, self.frame.name)
        if ended_then and ended_else:
            return True
        if ended_else:
            self.restore(after_then)
        elif not ended_then:
            self.merge(after_then)
        return False

    def do_assign(self, node: ast.Assign) -> bool:
        value = self.eval(node.value)
        for target in node.targets:
            self.assign(target, value, node)
        return False

    def do_annassign(self, node: ast.AnnAssign) -> bool:
        if node.value is not None:
            value = self.eval(node.value)
            if value.kinds & UNKNOWN:
                promised = self.read_annotation(node.annotation, value)
                value = promised or value
            self.assign(node.target, value, node)
        return False

    def read_annotation(self, annotation: ast.expr, value: Value) -> Value | None:
        """What an annotated assignment says about an unknown value."""
        why = self.why(annotation, f"annotated {ast.unparse(annotation)}")
        reader = Reader(self.project, self.frame.module)
        read = reader.read(annotation, value.param or "", next(iter(value.roots), "n0"), why)
        if read is None:
            return None
        if value.param:
            self.note(value, DEVICE if read.kinds & DEVICE else HOST, DECISIVE, annotation, why.text)
        return replace(read, deps=value.deps, cost=value.cost, roots=value.roots, param=value.param)

    def do_augassign(self, node: ast.AugAssign) -> bool:
        before = self.eval(node.target)
        value = self.eval(node.value)
        if isinstance(before.ref, Seq):
            if (
                before.ref.items is not None
                and before.ref.rest is None
                and isinstance(value.ref, Seq)
                and value.ref.items is not None
            ):
                joined = Seq([*before.ref.items, *value.ref.items], value.ref.rest, None, before.ref.mutable)
                result = replace(before, ref=joined)
            else:
                result = before
                before.ref.put(value.ref.element() or value if isinstance(value.ref, Seq) else value)
        elif before.kinds & DEVICE:
            self.mutated(node, before, "augmented assignment", node.target)
            # The name keeps the old storage, with new content.
            result = self.binary(before, value, node.op, node)
            result = replace(result, roots=before.roots)
        else:
            result = self.binary(before, value, node.op, node)
            if before.kinds & UNKNOWN:
                self.mutated(node, before, "augmented assignment", node.target)
                if before.roots and result.kinds & (DEVICE | UNKNOWN):
                    result = replace(result, roots=before.roots)
        self.assign(node.target, result, node, augmented=True)
        return False

    def assign(self, target: ast.expr, value: Value, node: ast.AST, augmented: bool = False) -> None:
        """Bind ``value`` to a target of any form."""
        if isinstance(target, (ast.Name, ast.Attribute)):
            self.forget_of(target)
        if isinstance(target, ast.Name):
            if target.id in self.frame.globals:
                self.log.stores.append(self.outside(target.id, target, value))
                self.module_values[(self.frame.module.path, target.id)] = _globalised(value, self.frame.module, target)
            else:
                self.frame.env[target.id] = value
                if self.frame.depth == 0 and self.log.phase == "forward" and self.statement is not None:
                    self.log.bindings.append(Binding(target.id, value, self.statement, self.tick(), self.path))
        elif isinstance(target, ast.Attribute):
            base = self.eval(target.value)
            self.set_attribute(base, target.attr, value, target, augmented)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target, value, node)
        elif isinstance(target, ast.Subscript):
            base = self.eval(target.value)
            key = self.eval(target.slice)
            self.set_item(base, key, value, target)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, node)

    def forget_of(self, target: ast.Name | ast.Attribute) -> None:
        """Give up what a test told of the attributes of a name that is bound anew, or of an attribute that is set."""
        if self.frame.told:
            head = f"{target.id}." if isinstance(target, ast.Name) else ""
            tail = f".{target.attr}" if isinstance(target, ast.Attribute) else ""
            for name in [name for name in self.frame.env if "." in name]:
                if name.startswith(head) and name.endswith(tail):
                    del self.frame.env[name]

    def unpack(self, target: ast.Tuple | ast.List, value: Value, node: ast.AST) -> None:
        """Tuple assignment, starred targets included."""
        count = len(target.elts)
        star = next((i for i, e in enumerate(target.elts) if isinstance(e, ast.Starred)), None)
        items = self.positions(value, count if star is None else None)
        if items is not None and star is not None and len(items) >= count - 1:
            tail = count - star - 1
            middle = items[star : len(items) - tail]
            items = [*items[:star], Value(HOST, ref=Seq(middle, mutable=True)), *items[len(items) - tail :]]
        if items is None or len(items) != count:
            element = self.element_of(value, node)
            head = value.ref if isinstance(value.ref, Seq) and value.ref.rest is not None else None
            known_head = len(head.items) if head is not None and head.items is not None else 0
            for position, part in enumerate(target.elts):
                own = element
                if head is not None and (star is None or position < star) and position < known_head:
                    assert head.items is not None
                    own = head.items[position]
                elif head is not None and isinstance(part, ast.Starred):
                    left = head.items[position:] if head.items is not None and star == position else []
                    own = part_of(head, left, max(position - known_head, 0), mutable=True)
                elif head is not None and head.places and not isinstance(part, ast.Starred):
                    behind = position if star is None or position < star else position - count
                    own = self.place(head, behind, node, part.id if isinstance(part, ast.Name) else "")
                elif isinstance(part, ast.Starred):
                    own = Value(HOST, ref=Seq(None, element, mutable=True))
                elif value.param is not None and (
                    value.kinds & UNKNOWN or f"{value.param}[{position}]" in self.settled
                ):
                    own = self.item_symbol(value, node, position)
                    if isinstance(part, ast.Name) and own.param is not None:
                        self.symbols[own.param].target = part.id
                elif element.roots and (
                    (element.cost >= OPAQUE and not isinstance(value.ref, Seq)) or "multi" in value.tags
                ):  # what a call returned together has a storage each; what a list holds may share one
                    own = replace(element, roots=frozenset(f"{root}#{position}" for root in element.roots), param=None)
                self.assign(part, own, node)
            return
        for part, item in zip(target.elts, items, strict=True):
            self.assign(part, item, node)

    def set_attribute(
        self, base: Value, name: str, value: Value, node: ast.Attribute | ast.Call, augmented: bool
    ) -> None:
        """``base.name = value``."""
        ref = base.ref
        if isinstance(ref, Recv):
            self.write(name, value, node, augmented)
        elif isinstance(ref, Inst):
            old = ref.attrs.get(name)
            ref.attrs[name] = value if old is None or not self.path else join(old, value)
        elif isinstance(ref, Cls):
            self.log.stores.append(self.outside(f"{ref.info.name}.{name}", node, value))
            self.class_attrs[(id(ref.info), name)] = value.tagged("side-channel")
        elif isinstance(ref, Mod):
            self.log.stores.append(self.outside(name, node, value))
            self.module_values[(ref.info.path, name)] = value.tagged("side-channel")
        elif base.kinds & DEVICE and name == "data":
            self.mutated(node, base, "assignment to .data", node)
            # The storage is the other's from here on: nothing is left to be filled.
            self.fill(base, replace(value, cost=max(value.cost, CHEAP)), node)
        elif (
            "handle" in base.tags and ref is None and isinstance(node, ast.Attribute) and carried(value).kinds & DEVICE
        ):
            # An object of a class outside, which holds a tensor from here on.
            if isinstance(node.value, ast.Name) and node.value.id in self.frame.env:
                self.frame.env[node.value.id] = replace(base, ref=Inst(OUTSIDE, {name: value}))

    def write(self, name: str, value: Value, node: ast.AST, augmented: bool = False) -> None:
        """A write to the receiver."""
        log = self.log
        log.writes.append(
            Write(
                name,
                node,
                value,
                self.frame.module.path,
                self.frame.name,
                log.phase,
                self.tick(),
                self.path,
                frozenset(self.guards),
            )
        )
        log.attrs[name] = value

    def grown(self, seq: Seq, value: Value, node: ast.AST) -> None:
        """Note what forward puts into a container that the constructor made: the attribute keeps it from then on."""
        field = self.owned.get(id(seq)) if self.owned and self.log.phase == "forward" else None
        if field is None:
            return
        why = self.why(node, f"put into `{field}`, a container of the constructor's", value.why)
        held = Value(HOST, ref=Seq(None, replace(value, why=why), mutable=True))
        current = self.log.attrs.get(field)
        self.write(field, held, node)
        self.log.writes[-1].grown = True
        if current is None:
            del self.log.attrs[field]  # it stays the constructor's container
        else:
            self.log.attrs[field] = current

    def set_item(self, base: Value, key: Value, value: Value, node: ast.Subscript) -> None:
        """``base[key] = value``."""
        ref = base.ref
        if isinstance(ref, Seq):
            self.grown(ref, value, node)
            if ref.shared:
                self.log.stores.append(self.outside(ref.shared.rpartition(".")[2], node, value))
                if value.kinds & DEVICE:
                    shared = Why(
                        self.frame.module.path,
                        node.lineno,
                        f"kept in `{ref.shared.rpartition('.')[2]}`, which every call shares",
                        value.why,
                    )
                    value = replace(value, cost=WORKSPACE, roots=frozenset((f"g:{ref.shared}",)), why=shared)
                ref.put(value)
                return
            literal = key.const
            if isinstance(literal, (str, int)) and not isinstance(literal, bool):
                if ref.items is not None and isinstance(literal, int) and -len(ref.items) <= literal < len(ref.items):
                    ref.items[literal] = value if not self.path else join(ref.items[literal], value)
                    return
                if (ref.keys is None and ref.items is None) or ref.keys is not None:
                    ref.keys = ref.keys if ref.keys is not None else {}
                    ref.keys[literal] = value
                    return
            ref.put(value)
        elif base.kinds & (DEVICE | UNKNOWN):
            self.mutated(node, base, "item assignment", node.value)
            self.fill(base, value, node)

    def fill(self, buffer: Value, value: Value, node: ast.AST) -> None:
        """A buffer of our own receives content."""
        for root in buffer.roots:
            if root.startswith("n"):
                old = self.heap.get(root)
                content = Value(
                    DEVICE, max(value.cost, CONST) if value.kinds & (DEVICE | UNKNOWN) else CONST, value.deps
                )
                content = replace(content, why=self.why(node, "filled here", value.why))
                self.heap[root] = content if old is None else join(old, content)

    def mutated(self, node: ast.AST, value: Value, how: str, target: ast.AST) -> None:
        """Note an in-place write."""
        self.log.mutations.append(
            Mutation(
                node,
                value,
                how,
                ast.unparse(target) if isinstance(target, (ast.Name, ast.Attribute)) else "",
                self.frame.module.path,
                self.frame.name,
                self.log.phase,
                self.tick(),
                self.path,
            )
        )

    def do_expr(self, node: ast.Expr) -> bool:
        if not isinstance(node.value, ast.Constant):
            self.eval(node.value)
        return False

    def do_return(self, node: ast.Return) -> bool:
        value = NONE_VALUE if node.value is None else self.eval(node.value)
        self.frame.returns.append(value)
        if len(self.stack) == 1:
            self.log.returns.append(
                Returned(node, value, self.frame.module.path, self.frame.name, self.log.phase, self.tick(), self.path)
            )
            if self.log.phase == "forward":
                self.exit(node)
        return True

    def exit(self, node: ast.AST) -> None:
        """Forward ends at ``node``: which fields are surely set."""
        surely = frozenset(n for n, v in self.log.attrs.items() if "maybe-unset" not in v.tags)
        self.log.exits.append(Exit(node, self.frame.module.path, self.frame.name, self.path, surely))

    def do_raise(self, node: ast.Raise) -> bool:
        if node.exc is not None:
            self.eval(node.exc)
        return True

    def do_for(self, node: ast.For | ast.AsyncFor) -> bool:
        iterable = self.eval(node.iter)
        items = self.positions(iterable, None)
        if (
            items is not None
            and len(items) <= 8
            and all(isinstance(i.ref, (Const, Seq)) or i.kinds & DEVICE for i in items)
        ):
            for item in items:
                self.assign(node.target, item, node)
                if self.block(node.body):
                    break
        elif items is None or items:
            element = self.element_of(iterable, node)
            self.loop(node, lambda: self.assign(node.target, element, node))
        self.block(node.orelse)
        return False

    def loop(self, node: ast.For | ast.AsyncFor | ast.While, bind: object) -> None:
        """Interpret a loop body until its effects on names show: twice, once when nested deeply."""
        before = self.snapshot()
        path = self.path
        self.path = (*path, (id(node), "body"))
        self.frame.loops += 1
        for _ in range(2 if self.frame.loops <= 2 else 1):
            if callable(bind):
                bind()
            self.block(node.body)
            self.merge(before)
        self.frame.loops -= 1
        self.path = path

    def do_while(self, node: ast.While) -> bool:
        self.condition(node.test)
        self.loop(node, None)
        self.block(node.orelse)
        return isinstance(node.test, ast.Constant) and bool(node.test.value) and not _breaks(node)

    def do_with(self, node: ast.With | ast.AsyncWith) -> bool:
        for item in node.items:
            value = self.eval(item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, node)
        return self.block(node.body)

    def do_try(self, node: ast.Try) -> bool:
        before = self.snapshot()
        ended = self.block(node.body)
        if not ended:
            ended = self.block(node.orelse)
        after = None if ended else self.snapshot()
        path = self.path
        for number, handler in enumerate(node.handlers):
            self.restore(before)
            self.path = (*path, (id(node), f"except{number}"))
            if handler.name:
                self.frame.env[handler.name] = Value(HOST)
            if not self.block(handler.body):
                if after is not None:
                    self.merge(after)
                after = self.snapshot()
        self.path = path
        self.restore(after if after is not None else before)
        return self.block(node.finalbody) or after is None

    def do_match(self, node: ast.Match) -> bool:
        subject = self.eval(node.subject)
        before = self.snapshot()
        after = None
        path = self.path
        for number, case in enumerate(node.cases):
            self.restore(before)
            self.path = (*path, (id(node), f"case{number}"))
            self.bind_pattern(case.pattern, subject, node)
            if case.guard is not None:
                self.condition(case.guard)
            if not self.block(case.body):
                if after is not None:
                    self.merge(after)
                after = self.snapshot()
        self.path = path
        self.restore(before)
        if after is not None:
            self.merge(after)
        return False

    def bind_pattern(self, pattern: ast.pattern, subject: Value, node: ast.AST) -> None:
        """Bind the names of a match pattern."""
        if isinstance(pattern, ast.MatchAs):
            if pattern.pattern is not None:
                self.bind_pattern(pattern.pattern, subject, node)
            if pattern.name is not None:
                self.frame.env[pattern.name] = subject
        elif isinstance(pattern, ast.MatchSequence):
            items = self.positions(subject, len(pattern.patterns))
            element = self.element_of(subject, node)
            for position, part in enumerate(pattern.patterns):
                own = items[position] if items is not None and len(items) == len(pattern.patterns) else element
                self.bind_pattern(part, own, node)
        elif isinstance(pattern, ast.MatchStar) and pattern.name is not None:
            self.frame.env[pattern.name] = Value(HOST, ref=Seq(None, self.element_of(subject, node)))
        elif isinstance(pattern, ast.MatchMapping):
            for part in pattern.patterns:
                self.bind_pattern(part, self.element_of(subject, node), node)
            if pattern.rest is not None:
                self.frame.env[pattern.rest] = subject
        elif isinstance(pattern, ast.MatchClass):
            name = ast.unparse(pattern.cls).rpartition(".")[2]
            for part in [*pattern.patterns, *pattern.kwd_patterns]:
                own = subject if name in ("int", "float", "str", "bool") else self.attribute(subject, "_", node)
                self.bind_pattern(part, own, node)
        elif isinstance(pattern, ast.MatchOr):
            for part in pattern.patterns:
                self.bind_pattern(part, subject, node)

    def do_delete(self, node: ast.Delete) -> bool:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.frame.env.pop(target.id, None)
            elif isinstance(target, ast.Attribute):
                base = self.eval(target.value)
                if isinstance(base.ref, Recv):
                    self.log.deletes.append(self.event(target.attr, target))
                    self.log.attrs.pop(target.attr, None)
        return False

    def literal_names(self, node: ast.expr) -> list[str]:
        """The strings that a name expression may be, where they can be listed: f-strings and loops give none."""
        value = self.eval(node)
        return [value.const] if isinstance(value.const, str) else []

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

    def do_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        closure = Chain(self.frame)
        value = Value(HOST, ref=Func(node, self.frame.module, self.frame.owner, closure, is_kernel(node)))
        self.frame.env[node.name] = value
        self.look_inside(node, [*node.body, *defaults(node), *node.decorator_list])
        return False

    def do_class(self, node: ast.ClassDef) -> bool:
        info = class_info(node, self.frame.module, f"{self.frame.name}.<locals>.")
        self.frame.env[node.name] = Value(HOST, ref=Cls(info))
        self.look_inside(node, [*node.body, *node.bases, *node.decorator_list])
        return False

    def do_import(self, node: ast.Import | ast.ImportFrom) -> bool:
        table: dict[str, list[object]] = {}
        self.frame.module.bind_import(node, table)  # type: ignore[arg-type]
        for name, entries in table.items():
            found = self.project.follow(self.frame.module, entries[0])  # type: ignore[arg-type]
            if found is not None:
                self.frame.env[name] = self.from_resolved(found.binding, found.module, found.dotted, name)
        return False

    def do_global(self, node: ast.Global) -> bool:
        self.frame.globals.update(node.names)
        return False

    def do_assert(self, node: ast.Assert) -> bool:
        self.condition(node.test)
        self.narrow(node.test, True)
        if node.msg is not None:
            self.eval(node.msg)
        return _never(node)

    def do_jump(self, node: ast.stmt) -> bool:
        return True

    # -- containers --------------------------------------------------------------------------------------------------

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


OUTSIDE = class_info(ast.ClassDef("object", [], [], [], []), ModuleInfo("<outside>", "", "<outside>"), "")
"""The class of objects whose own is not here."""


class Chain(dict[str, Value]):
    """Names a nested function sees: the enclosing activation's, as they stand when asked, then those further out."""

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self.outer = frame

    def get(self, key: str, default: Value | None = None) -> Value | None:  # type: ignore[override]
        """The value of a name, nearest scope first."""
        found = self.outer.env.get(key)
        if found is None and self.outer.closure is not None:
            found = self.outer.closure.get(key)
        return default if found is None else found


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


def is_kernel(node: FunctionNode) -> bool:
    """Whether a function is device code (``@triton.jit`` and its like): launched, never interpreted."""
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        text = ast.unparse(target)
        last = text.rpartition(".")[2]
        if last in ("autotune", "heuristics") or (
            last in ("jit", "kernel") and _DEVICE_JIT.intersection(text.split("."))
        ):
            return True
    return False


_BUILTINS = frozenset((*dir(builtins), "__file__", "__name__", "__class__"))
_DEVICE_JIT = frozenset(("triton", "tilelang", "gluon", "cute", "wp", "ct", "cuda", "helion", "T", "tl"))


def _globalised(value: Value, module: ModuleInfo, target: ast.Name) -> Value:
    tagged = value.tagged("side-channel")
    if value.kinds & DEVICE:
        return replace(tagged, cost=WORKSPACE, roots=frozenset((f"g:{module.path}:{target.id}",)))
    return tagged


def _breaks(node: ast.While) -> bool:
    return any(isinstance(item, ast.Break) for item in walk(node))


def _never(node: ast.stmt | None) -> bool:
    """Whether a statement says that nothing gets here: ``assert False``, which is meant as a raise."""
    return isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and not node.test.value


def _how_it_ends(body: list[ast.stmt], function: str) -> str:
    last = body[-1] if body else None
    if isinstance(last, ast.Raise) or _never(last):
        return "raise"
    return "jump" if isinstance(last, (ast.Continue, ast.Break)) else function


_STATEMENTS: dict[type, Any] = {
    ast.Assign: Machine.do_assign,
    ast.AnnAssign: Machine.do_annassign,
    ast.AugAssign: Machine.do_augassign,
    ast.Expr: Machine.do_expr,
    ast.If: Machine.do_if,
    ast.Return: Machine.do_return,
    ast.Raise: Machine.do_raise,
    ast.For: Machine.do_for,
    ast.AsyncFor: Machine.do_for,
    ast.While: Machine.do_while,
    ast.With: Machine.do_with,
    ast.AsyncWith: Machine.do_with,
    ast.Try: Machine.do_try,
    ast.TryStar: Machine.do_try,
    ast.Match: Machine.do_match,
    ast.Delete: Machine.do_delete,
    ast.FunctionDef: Machine.do_function,
    ast.AsyncFunctionDef: Machine.do_function,
    ast.ClassDef: Machine.do_class,
    ast.Import: Machine.do_import,
    ast.ImportFrom: Machine.do_import,
    ast.Global: Machine.do_global,
    ast.Assert: Machine.do_assert,
    ast.Break: Machine.do_jump,
    ast.Continue: Machine.do_jump,
}
