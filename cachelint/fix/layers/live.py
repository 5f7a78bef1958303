"""Forward's inputs in backward: which parameter is which, which fields are aliases, and what that makes of backward."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cachelint.fix.edits import Edit, Replace, Rewrite, Span, Text
from cachelint.fix.layers.view import FORWARD, ClassView, MethodView, Use, is_none
from cachelint.index.walk import blocks, children, walk


def pairs(view: ClassView) -> dict[str, str]:
    """For each parameter of forward the code that gives it in backward: by name, else by place."""
    forward, backward = view.forward, view.backward
    if forward is None or backward is None:
        return {}
    theirs, own = forward.positional, backward.positional[1:]
    found: dict[str, str] = {}
    for place, name in enumerate(theirs):
        if name in own:
            found[name] = name
        elif place < len(own) and own[place] not in theirs:
            found[name] = own[place]
        elif place >= len(own) and backward.node.args.vararg is not None:
            found[name] = f"{backward.node.args.vararg.arg}[{place - len(own)}]"
    return found


def optional(view: ClassView, names: Sequence[str]) -> tuple[str, ...]:
    """Those parameters of backward, among ``names`` and in front of them, that have a default."""
    assert view.backward is not None
    spec = view.backward.node.args
    every = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    first = len(every) - len(spec.defaults)
    last = max((every.index(n) for n in names if n in every), default=-1)
    return tuple(every[first : last + 1])


def alias(view: ClassView, value: ast.expr | None, method: MethodView, statement: ast.stmt, depth: int = 0) -> str:
    """The parameter of forward that an expression of a method repeats, through calls of helpers; empty if none."""
    if not isinstance(value, ast.Name) or depth > 4 or value.id not in method.positional:
        return ""
    if method.flow.rebound_between(value.id, -1, method.flow.top(statement)):
        return ""
    if method is view.forward:
        return value.id
    if FORWARD not in method.roles:
        return ""
    found: set[str] = set()
    place = method.positional.index(value.id)
    for caller in view.methods.values():
        for call in caller.calls.get(method.name, ()):
            argument = _argument(call, place, value.id)
            found.add(alias(view, argument, caller, caller.flow.statement(call), depth + 1))
    return found.pop() if len(found) == 1 else ""


def _argument(call: ast.Call, place: int, name: str) -> ast.expr | None:
    if any(isinstance(a, ast.Starred) for a in call.args):
        return None
    if place < len(call.args):
        return call.args[place]
    return next((k.value for k in call.keywords if k.arg == name), None)


@dataclass
class Folder:
    """Rewrites one method in which some fields have become names that are never None.

    ``known`` maps fields to the code that stands for them, ``sure`` holds parameters that are always given now.
    Tests of either against None are decided, and what follows from that is taken out.
    """

    text: Text
    method: MethodView
    known: Mapping[str, str]
    sure: frozenset[str]
    edits: list[Edit] = field(default_factory=list)

    def run(self) -> list[Edit]:
        """The edits of the method's body."""
        for statement in self.method.node.body:
            self.statement(statement)
        return self.edits

    # -- statements --------------------------------------------------------------------------------------------------

    def statement(self, node: ast.stmt) -> None:
        """Fold one statement, and those inside it."""
        if isinstance(node, ast.If):
            truth = self.truth(node.test)
            if truth is not None:
                lines = self.lines(node.body if truth else node.orelse)
                self.edits.append(Rewrite(self.text.span(node), tuple(lines)))
                return
            self.expressions(node.test)
            for inner in (*node.body, *node.orelse):
                self.statement(inner)
            return
        if self.useless(node):
            self.edits.append(Rewrite(self.text.span(node)))
            return
        for block in blocks(node):
            for inner in block:
                self.statement(inner)
        for child in children(node):
            if not isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                self.expressions(child)

    def useless(self, node: ast.stmt) -> bool:
        """``x = self.last_input`` where that is ``x``."""
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            return False
        targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else [node.targets[0]]
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        return len(targets) == len(values) and all(
            isinstance(t, ast.Name) and self.code(v) == t.id for t, v in zip(targets, values, strict=True)
        )

    def lines(self, body: Sequence[ast.stmt]) -> list[str]:
        """The statements of a block whose branch is decided."""
        lines: list[str] = []
        for node in body:
            if isinstance(node, ast.If) and (truth := self.truth(node.test)) is not None:
                lines += self.lines(node.body if truth else node.orelse)
            elif not self.useless(node) and not isinstance(node, ast.Pass):
                code = self.text.source(node, dict(self.changes(node)))
                indent = " " * node.col_offset
                lines += [line.removeprefix(indent) for line in code.splitlines()]
        return lines

    # -- expressions -------------------------------------------------------------------------------------------------

    def expressions(self, node: ast.AST) -> None:
        """Fold the expressions of a statement that stays."""
        self.edits += [Replace(span, code) for span, code in self.changes(node)]

    def changes(self, node: ast.AST) -> list[tuple[Span, str]]:
        """The outermost changes below a node."""
        if isinstance(node, ast.expr):
            new = self.new(node)
            if new is not None:
                return [(self.text.span(node), new)]
        return [change for child in children(node) for change in self.changes(child)]

    def new(self, node: ast.expr) -> str | None:
        """What an expression becomes as a whole, None where it stays."""
        known = self.field(node)
        if known is not None:
            return known
        if isinstance(node, ast.IfExp):
            truth = self.truth(node.test)
            if truth is not None:
                return self.code(node.body if truth else node.orelse)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and self.never_none(node.values[0]):
            return self.code(node.values[0])
        return None

    def code(self, node: ast.expr) -> str:
        """The text of an expression after the changes."""
        new = self.new(node)
        return new if new is not None else self.text.source(node, dict(self.changes(node)))

    def field(self, node: ast.expr) -> str | None:
        """What stands for the field that an expression reads, None where it reads none that goes."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and isinstance(node.ctx, ast.Load):
            if node.value.id == self.method.receiver:
                return self.known.get(node.attr)
        return None

    def never_none(self, node: ast.expr) -> bool:
        """Whether an expression is a field that goes, or an input that is always given."""
        return self.field(node) is not None or (isinstance(node, ast.Name) and node.id in self.sure)

    def truth(self, test: ast.expr) -> bool | None:
        """What a test comes to, None where that is open."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.truth(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            parts = [self.truth(part) for part in test.values]
            decided = isinstance(test.op, ast.Or)
            if decided in parts:
                return decided
            return None if None in parts else not decided
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and is_none(test.comparators[0]):
            if isinstance(test.ops[0], (ast.Is, ast.IsNot)) and self.never_none(test.left):
                return isinstance(test.ops[0], ast.IsNot)
        return None


def rebound(view: ClassView, names: frozenset[str], known: Mapping[str, str]) -> frozenset[str]:
    """Those parameters of backward that it binds to something else than the fields that stand for them."""
    method = view.backward
    assert method is not None
    found: set[str] = set()
    for name in names:
        for node in method.flow.bindings.get(name, ()):
            statement = method.flow.statement(node)
            if not _same(statement, name, known, method):
                found.add(name)
    return frozenset(found)


def _same(statement: ast.stmt, name: str, known: Mapping[str, str], method: MethodView) -> bool:
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    targets = statement.targets[0].elts if isinstance(statement.targets[0], ast.Tuple) else [statement.targets[0]]
    values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
    if len(targets) != len(values):
        return False
    for target, value in zip(targets, values, strict=True):
        if isinstance(target, ast.Name) and target.id == name:
            parts = [value]
            if isinstance(value, ast.IfExp):
                parts = [value.body, value.orelse]
            elif isinstance(value, ast.BoolOp):
                parts = value.values
            for part in parts:
                own = isinstance(part, ast.Name) and part.id == name
                attribute = isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name)
                if not own and not (
                    attribute and part.value.id == method.receiver and known.get(part.attr) == name  # type: ignore[attr-defined]
                ):
                    return False
            return True
    return False


def short_call(view: ClassView, needed: int) -> str:
    """A call of a ``backward`` with fewer live inputs than ``needed``, in a file that names the class: its place."""
    from cachelint.classify import relative

    project = view.context.project
    for path, data in view.mentions:
        if b".backward(" not in data:
            continue
        module = project.module(path)
        if module is None:
            continue
        for chunk in module.chunks:
            if ".backward(" not in chunk.text:
                continue
            for statement in module.statements(chunk):
                for node in walk(statement):
                    if (
                        isinstance(node, ast.Call)
                        and isinstance(node.func, ast.Attribute)
                        and node.func.attr == "backward"
                    ):
                        given = len(node.args) + len(node.keywords)
                        starred = any(isinstance(a, ast.Starred) for a in node.args)
                        if 1 <= given < 1 + needed and not starred and not _is_self(node.func.value):
                            project.used.add(path)
                            return f"{relative(path)}:{node.lineno}"
    return ""


def _is_self(node: ast.expr) -> bool:
    """``super().backward(...)`` is another class's business."""
    return isinstance(node, ast.Call)


def loads_beside(uses: Sequence[Use], methods: Sequence[MethodView | None]) -> Use | None:
    """A read that stands in none of the methods."""
    return next((use for use in uses if use.kind == "load" and use.method not in methods), None)
