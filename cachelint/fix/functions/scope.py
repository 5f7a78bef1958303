"""Every use of the receiver, in the functions of a type and the helpers that are given it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from cachelint.checks import TypeContext
from cachelint.collect.types import Method
from cachelint.fix.functions.flow import Flow
from cachelint.index.module import ClassInfo, FunctionNode
from cachelint.index.walk import walk

FORWARD, SETUP, BACKWARD, JVP = "forward", "setup_context", "backward", "jvp"


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """One use of the receiver. ``kind`` is ``load``, ``store``, ``delete``, ``save`` (a call of the save API, whose
    name is ``field``), ``saved`` (reading back), ``api``, ``test`` (hasattr, getattr with a default) or ``escape``."""

    kind: str
    field: str
    node: ast.expr
    nested: bool


def with_default(use: Use) -> bool:
    """Whether a use is ``getattr(ctx, "x", default)``."""
    func = use.node.func if isinstance(use.node, ast.Call) else None
    return isinstance(func, ast.Name) and func.id == "getattr" and len(use.node.args) > 2  # type: ignore[attr-defined]


@dataclass(eq=False, slots=True)
class Link:
    """A call that hands the receiver to a helper."""

    call: ast.Call
    target: Routine


@dataclass(eq=False)
class Routine:
    """A function that has the receiver as a parameter. ``role`` is how the first type reached it."""

    node: FunctionNode
    receiver: str
    role: str
    main: bool
    path: str
    owner: ClassInfo | None = None
    uses: list[Use] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    roles: set[str] = field(default_factory=set)

    @cached_property
    def flow(self) -> Flow:
        """What is bound where."""
        return Flow(self.node)

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.node.name

    def of(self, kind: str, name: str | None = None) -> list[Use]:
        """The uses of a kind, of one field or of all."""
        return [use for use in self.uses if use.kind == kind and (name is None or use.field == name)]


@dataclass(eq=False, slots=True)
class Scope:
    """The routines of one type: by the id of their node."""

    context: TypeContext
    routines: dict[int, Routine] = field(default_factory=dict)
    mains: dict[str, list[Routine]] = field(default_factory=dict)


def scope_of(context: TypeContext, known: dict[int, Routine]) -> Scope:
    """Read the functions of a type. ``known`` holds the routines that other types of the file have already reached."""
    return _Reader(context, known).read()


class _Reader:
    def __init__(self, context: TypeContext, known: dict[int, Routine]) -> None:
        self.context = context
        self.unit = context.analysis.unit
        self.known = known
        self.scope = Scope(context)
        spec = self.unit.dialect
        self.api = frozenset(spec.api)
        self.save = frozenset(spec.save)
        self.read_back = frozenset(spec.read_back)

    def read(self) -> Scope:
        unit = self.unit
        mains: list[tuple[str, Method]] = []
        takes = not unit.setup or unit.dialect.name == "paddle"
        if unit.dialect.name != "torch-library" and (takes or self.receiver(unit.forward[0]) in _RECEIVERS):
            mains += [(FORWARD, method) for method in unit.forward]
        mains += [(SETUP, method) for method in unit.setup]
        mains += [(JVP if method.node.name == "jvp" else BACKWARD, method) for method in unit.backward]
        for role, method in mains:
            receiver = self.receiver(method)
            routine = self.routine(method.node, receiver, role, method.module.path, method.owner, main=True)
            self.scope.mains.setdefault(role, []).append(routine)
        return self.scope

    def receiver(self, method: Method) -> str:
        """The receiver's name: the first parameter, or the second behind the class of a classmethod."""
        names = [a.arg for a in (*method.node.args.posonlyargs, *method.node.args.args)]
        classmethod_ = any(isinstance(d, ast.Name) and d.id == "classmethod" for d in method.node.decorator_list)
        place = 1 if classmethod_ or names[:2] == ["cls", "ctx"] else 0
        return names[place] if len(names) > place else ""

    def routine(
        self, node: FunctionNode, receiver: str, role: str, path: str, owner: ClassInfo | None, main: bool = False
    ) -> Routine:
        found = self.scope.routines.get(id(node))
        if found is not None and role in found.roles:
            found.main |= main
            return found
        found = found or self.known.get(id(node))
        if found is None:
            found = Routine(node, receiver, role, main, path, owner)
            self.known[id(node)] = found
            found.uses = sorted(self.uses(found), key=lambda use: (use.node.lineno, use.node.col_offset))
        found.main |= main
        found.roles.add(role)
        self.scope.routines[id(node)] = found
        for link in found.links:
            self.routine(link.target.node, link.target.receiver, role, link.target.path, link.target.owner)
        return found

    # -- one function ------------------------------------------------------------------------------------------------

    def uses(self, routine: Routine) -> Iterator[Use]:
        flow = routine.flow
        shadows = _shadows(routine.node, routine.receiver)
        for item in walk(routine.node):
            if not isinstance(item, ast.Name) or item.id != routine.receiver or _inside(item, shadows, flow):
                continue
            parent = flow.parents.get(item)
            nested = flow.nested(item)
            if isinstance(parent, ast.Compare) and _is_none_test(parent, item):
                continue
            if not isinstance(item.ctx, ast.Load):
                yield Use("escape", "*", item, nested)
            elif isinstance(parent, ast.Attribute):
                yield from self.attribute(parent, flow, nested)
            elif isinstance(parent, ast.Call) and item in parent.args:
                yield from self.argument(item, parent, routine, nested)
            elif isinstance(parent, ast.keyword):
                call = flow.parents.get(parent)
                assert isinstance(call, ast.Call)
                yield from self.handed_on(item, call, parent.arg, routine, nested)
            else:
                yield Use("escape", "*", item, nested)

    def attribute(self, node: ast.Attribute, flow: Flow, nested: bool) -> Iterator[Use]:
        name = node.attr
        parent = flow.parents.get(node)
        called = isinstance(parent, ast.Call) and parent.func is node
        if name in self.save:
            yield Use("save", name, parent, nested) if called else Use("escape", "*", node, nested)  # type: ignore[arg-type]
        elif name in self.read_back:
            if self.unit.dialect.name == "paddle":
                yield Use("saved", name, parent, nested) if called else Use("escape", "*", node, nested)  # type: ignore[arg-type]
            else:
                yield Use("saved", name, node, nested)
        elif name in self.api:
            yield Use("api", name, node, nested)
        elif name in ("__dict__", "__class__", "__getattribute__", "__setattr__", "__delattr__"):
            yield Use("escape", "*", node, nested)
        elif isinstance(node.ctx, ast.Store):
            augmented = isinstance(parent, ast.AugAssign)
            if augmented:
                yield Use("load", name, node, nested)
            yield Use("store", name, node, nested)
        elif isinstance(node.ctx, ast.Del):
            yield Use("delete", name, node, nested)
        else:
            yield Use("load", name, node, nested)

    def argument(self, item: ast.Name, call: ast.Call, routine: Routine, nested: bool) -> Iterator[Use]:
        """The receiver as a positional argument: getattr and its relatives, or a helper."""
        if isinstance(call.func, ast.Name) and call.args[0] is item and call.func.id in _BY_NAME:
            literal = call.args[1] if len(call.args) > 1 else None
            named = isinstance(literal, ast.Constant) and isinstance(literal.value, str)
            if named and literal.value not in self.save | self.read_back:  # type: ignore[union-attr]
                kind = (
                    "test"
                    if call.func.id == "hasattr" or (call.func.id == "getattr" and len(call.args) > 2)
                    else ("load" if call.func.id == "getattr" else "store" if call.func.id == "setattr" else "delete")
                )
                yield Use(kind, literal.value, call, nested)  # type: ignore[union-attr]
            else:
                yield Use("escape", "*", item, nested)
            return
        yield from self.handed_on(item, call, None, routine, nested)

    def handed_on(
        self, item: ast.Name, call: ast.Call, keyword: str | None, routine: Routine, nested: bool
    ) -> Iterator[Use]:
        target = self.callee(call.func, routine)
        if target is None:
            yield Use("escape", "*", item, nested)
            return
        node, owner, path, bound = target
        positional = [a.arg for a in (*node.args.posonlyargs, *node.args.args)][bound:]
        if keyword is None:
            place = call.args.index(item)
            starred = any(isinstance(arg, ast.Starred) for arg in call.args[:place])
            name = positional[place] if place < len(positional) and not starred else None
        else:
            name = keyword if keyword in positional or keyword in {a.arg for a in node.args.kwonlyargs} else None
        if name is None:
            yield Use("escape", "*", item, nested)
            return
        known = self.known.get(id(node))
        if known is None:
            known = Routine(node, name, routine.role, False, path, owner)
            self.known[id(node)] = known
            known.uses = sorted(self.uses(known), key=lambda use: (use.node.lineno, use.node.col_offset))
        if known.receiver != name:
            yield Use("escape", "*", item, nested)
            return
        routine.links.append(Link(call, known))

    def callee(self, func: ast.expr, routine: Routine) -> tuple[FunctionNode, ClassInfo | None, str, int] | None:
        """The project function that a call runs, its class, its file, and how many arguments are bound already."""
        project, module = self.context.project, self.unit.module
        if isinstance(func, ast.Name):
            if func.id in routine.flow.parameters or func.id in routine.flow.bindings:
                return None
            found = project.resolve(module, func.id) if routine.path == module.path else None
            if found is not None and found.module is not None and isinstance(found.binding, _FUNCTION):
                if found.binding.decorator_list:
                    return None
                return found.binding, None, found.module.path, 0
            return None
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
            info = self.class_named(func.value.id, routine)
            if info is None:
                return None
            method = self.context.analysis.machine.find_method(info, func.attr)
            if method is None:
                return None
            node, owner = method
            kinds = {d.id for d in node.decorator_list if isinstance(d, ast.Name)}
            if kinds - {"staticmethod", "classmethod"} or len(kinds) != len(node.decorator_list):
                return None
            return node, owner, owner.module.path, 1 if "classmethod" in kinds else 0
        return None

    def class_named(self, name: str, routine: Routine) -> ClassInfo | None:
        names = [a.arg for a in (*routine.node.args.posonlyargs, *routine.node.args.args)]
        if routine.owner is not None and names and names[0] == name and name != routine.receiver:
            return routine.owner
        if routine.owner is not None and routine.owner.name == name:
            return routine.owner
        found = self.context.project.resolve(self.unit.module, name)
        return found.binding if found is not None and isinstance(found.binding, ClassInfo) else None


_RECEIVERS = ("ctx", "self", "context", "_ctx")
_BY_NAME = ("getattr", "setattr", "hasattr", "delattr")
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def _is_none_test(node: ast.Compare, item: ast.Name) -> bool:
    """``ctx is not None``, in code that also runs without one."""
    alone = len(node.ops) == 1 and isinstance(node.ops[0], (ast.Is, ast.IsNot)) and node.left is item
    return alone and isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None


def _shadows(node: FunctionNode, receiver: str) -> list[ast.AST]:
    """Functions inside that have a parameter of the receiver's name."""
    found: list[ast.AST] = []
    for item in walk(node):
        if item is not node and isinstance(item, (*_FUNCTION, ast.Lambda)):
            spec = item.args
            every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
            if any(arg is not None and arg.arg == receiver for arg in every):
                found.append(item)
    return found


def _inside(node: ast.AST, outer: list[ast.AST], flow: Flow) -> bool:
    current: ast.AST | None = node
    while outer and current is not None:
        if any(current is item for item in outer):
            return True
        current = flow.parents.get(current)
    return False
