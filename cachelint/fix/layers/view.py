"""One class: its methods, which of them run in forward and in backward, and every use of every field of ``self``."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cached_property

from cachelint.checks import TypeContext
from cachelint.fix.edits import Text
from cachelint.fix.functions.flow import Flow
from cachelint.index.module import ClassInfo, FunctionNode
from cachelint.index.walk import walk
from cachelint.infer.optable import operators

FORWARD, BACKWARD = "forward", "backward"
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_CHANGES = frozenset("append extend insert add update setdefault pop popitem remove clear appendleft".split())


@dataclass(eq=False)
class MethodView:
    """A method of the class. ``roles`` says whether forward, backward or both reach it by calls on ``self``."""

    node: FunctionNode
    receiver: str
    flow: Flow
    roles: set[str] = field(default_factory=set)
    calls: dict[str, list[ast.Call]] = field(default_factory=dict)
    """The calls ``self.name(...)`` in it, by name."""

    @property
    def name(self) -> str:
        """The method's name."""
        return self.node.name

    @property
    def positional(self) -> list[str]:
        """The names of the positional parameters, the receiver left out."""
        return [a.arg for a in (*self.node.args.posonlyargs, *self.node.args.args)][1:]


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """One use of ``self.field``. ``kind``: ``load``, ``store``, ``delete``, ``change`` (an item or a method that changes
    a container), ``save`` (an argument of the save call)."""

    kind: str
    method: MethodView
    node: ast.Attribute
    statement: ast.stmt
    value: ast.expr | None = None
    plain: bool = False
    """Whether a store is a whole statement ``self.field = value``."""


class ClassView:
    """A class as the remedies see it."""

    def __init__(self, context: TypeContext, text: Text) -> None:
        unit = context.analysis.unit
        assert unit.info is not None
        self.context = context
        self.text = text
        self.info: ClassInfo = unit.info
        self.node = unit.info.node
        self.save = unit.dialect.save[0] if unit.dialect.save else context.settings.contract.save
        self.methods: dict[str, MethodView] = {}
        self.odd = ""
        """Why the class can't be read, empty if it can."""
        self.fields: dict[str, list[Use]] = {}
        for member in self.node.body:
            if isinstance(member, _FUNCTION):
                self._method(member)
        self.forward = self._main([m.node for m in unit.forward])
        self.backward = self._main([m.node for m in unit.backward])
        for method, role in ((self.forward, FORWARD), (self.backward, BACKWARD)):
            self._reach(method, role)
        for method in self.methods.values():
            self._uses(method)

    def _main(self, nodes: list[FunctionNode]) -> MethodView | None:
        return next((m for node in nodes for m in self.methods.values() if m.node is node), None)

    def _method(self, node: FunctionNode) -> None:
        if any(isinstance(d, ast.Name) and d.id in ("staticmethod", "classmethod") for d in node.decorator_list):
            return
        every = [*node.args.posonlyargs, *node.args.args]
        if not every:
            return
        key = node.name if node.name not in self.methods else f"{node.name}@{node.lineno}"
        self.methods[key] = MethodView(node, every[0].arg, Flow(node))

    def _reach(self, method: MethodView | None, role: str) -> None:
        if method is None or role in method.roles:
            return
        method.roles.add(role)
        for item in walk(method.node):
            if (
                isinstance(item, ast.Attribute)
                and isinstance(item.value, ast.Name)
                and item.value.id == method.receiver
            ):
                target = self.methods.get(item.attr)
                if target is not None:
                    self._reach(target, role)

    def _uses(self, method: MethodView) -> None:
        flow = method.flow
        for item in walk(method.node):
            if not isinstance(item, ast.Name) or item.id != method.receiver:
                continue
            parent = flow.parents.get(item)
            if not isinstance(parent, ast.Attribute):
                if not (
                    isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "super"
                ):
                    self.odd = self.odd or f"`{method.receiver}` itself is handed on (line {item.lineno})"
                continue
            above = flow.parents.get(parent)
            if isinstance(above, ast.Call) and above.func is parent:
                method.calls.setdefault(parent.attr, []).append(above)
                if parent.attr in self.methods or parent.attr == self.save:
                    continue
            if parent.attr in ("__dict__", "__setattr__"):
                self.odd = self.odd or f"fields are reached through `{parent.attr}` (line {item.lineno})"
            self.fields.setdefault(parent.attr, []).append(self._use(method, parent))
        for item in walk(method.node):
            if (
                isinstance(item, ast.Call)
                and isinstance(item.func, ast.Name)
                and item.func.id in ("setattr", "getattr", "vars")
            ):
                first = item.args[0] if item.args else None
                if isinstance(first, ast.Name) and first.id == method.receiver:
                    self.odd = self.odd or f"fields are reached through `{item.func.id}` (line {item.lineno})"

    def _use(self, method: MethodView, node: ast.Attribute) -> Use:
        flow = method.flow
        statement = flow.statement(node)
        if isinstance(node.ctx, ast.Del):
            return Use("delete", method, node, statement)
        if isinstance(node.ctx, ast.Store):
            value, plain = stored(statement, node)
            return Use("store", method, node, statement, value, plain)
        above = flow.parents.get(node)
        if isinstance(above, ast.Subscript) and above.value is node and not isinstance(above.ctx, ast.Load):
            return Use("change", method, node, statement)
        if isinstance(above, ast.Attribute):
            call = flow.parents.get(above)
            if isinstance(call, ast.Call) and call.func is above and above.attr in _CHANGES:
                return Use("change", method, node, statement)
        call = flow.parents.get(above) if isinstance(above, ast.Starred) else above
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == self.save:
            if isinstance(call.func.value, ast.Name) and call.func.value.id == method.receiver:
                return Use("save", method, node, statement)
        return Use("load", method, node, statement)

    # -- questions ---------------------------------------------------------------------------------------------------

    def of(self, name: str, *kinds: str) -> list[Use]:
        """The uses of a field, of some kinds or of all."""
        return [use for use in self.fields.get(name, ()) if not kinds or use.kind in kinds]

    @cached_property
    def mentions(self) -> tuple[tuple[str, bytes], ...]:
        """The files of the project that name the class, with their content: only code there can mean its fields."""
        unit, project = self.context.analysis.unit, self.context.project
        word = unit.name.rpartition(".")[2].encode()
        found: list[tuple[str, bytes]] = []
        own = [unit.module.path]
        for path in own if "<locals>" in unit.name else project.files:
            data = unit.module.text.encode() if path == unit.module.path else project.raw(path)
            if data is not None and word in data:
                found.append((path, data))
        return tuple(found)

    def fresh_method(self, wanted: str) -> str:
        """A name like ``wanted`` that neither the class nor a base of it uses."""
        busy = set(self.fields) | set(self.methods)
        for owner in self.context.analysis.machine.mro(self.info):
            busy.update(n.name for n in owner.node.body if isinstance(n, _FUNCTION))
        return next(name for name in (wanted, *(f"{wanted}_{n}" for n in range(2, 99))) if name not in busy)


def stored(statement: ast.stmt, node: ast.expr) -> tuple[ast.expr | None, bool]:
    """The value that a store gives ``node``, and whether the statement does nothing else."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and statement.targets[0] is node:
        return statement.value, True
    if isinstance(statement, ast.AnnAssign) and statement.target is node:
        return statement.value, True
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
            if len(target.elts) == len(value.elts) and node in target.elts:
                return value.elts[target.elts.index(node)], False
    return None, False


def is_none(node: ast.expr | None) -> bool:
    """Whether an expression is the literal None."""
    return isinstance(node, ast.Constant) and node.value is None


def is_empty(node: ast.expr | None) -> bool:
    """Whether an expression is None or an empty container."""
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return not node.elts
    return is_none(node) or (isinstance(node, ast.Dict) and not node.keys)


def outside_reader(view: ClassView, name: str) -> str:
    """Where other code reads (or writes) a field: ``path:line``, empty if nowhere. Only files that name the class, or
    one that derives from it, can mean its field; ``self.name`` there counts in a subclass."""
    unit, project = view.context.analysis.unit, view.context.project
    word = unit.name.rpartition(".")[2].encode()
    needle = re.compile(rb"\b(\w+|[\])])\s*\.[ \t]*" + re.escape(name.encode()) + rb"\b(\s*\()?")
    subclass = re.compile(rb"class\s+\w+\s*\([^)]*\b" + re.escape(word) + rb"\b")
    quoted = re.compile(rb"attr(?:getter)?\([^()\n]*[\"']" + re.escape(name.encode()) + rb"[\"']")
    method = name in operators().methods
    for owner in view.context.analysis.machine.mro(view.info)[1:]:
        for node in walk(owner.node):
            if isinstance(node, ast.Attribute) and node.attr == name:
                return _place(owner.module.path, node.lineno, owner.module is unit.module)
    for path, data in view.mentions:
        if name.encode() not in data:
            continue
        own = path == unit.module.path
        derived = subclass.search(data) is not None
        for match in needle.finditer(data):
            if match[1] in (b"self", b"cls") and not derived:
                continue
            if match[1] in (b"torch", b"F") or (match[2] and method):
                continue
            line = data.count(b"\n", 0, match.start()) + 1
            if own and view.node.lineno <= line <= (view.node.end_lineno or line):
                continue
            project.used.add(path)
            return _place(path, line, own)
        found = quoted.search(data)
        if found is not None:
            return _place(path, data.count(b"\n", 0, found.start()) + 1, own)
    return ""


def _place(path: str, line: int, own: bool) -> str:
    from cachelint.classify import relative

    return f"line {line}" if own else f"{relative(path)}:{line}"
