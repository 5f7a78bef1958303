"""The abstract machine: functions and their statements."""

from __future__ import annotations

import ast
from typing import Any, Final

from cachelint.collect.log import (
    Binding,
    Exit,
    Returned,
)
from cachelint.index.module import ClassInfo, FunctionNode, ModuleInfo, class_info
from cachelint.index.walk import code_of, walk
from cachelint.infer.annotations import Reader
from cachelint.infer.calls import Calls
from cachelint.infer.core import MAX_DEPTH, MAX_STEPS, Exhausted, Frame, join_deps
from cachelint.infer.expressions import defaults
from cachelint.infer.places import part_of
from cachelint.infer.scopes import is_kernel
from cachelint.infer.symbols import DECISIVE
from cachelint.infer.values import (
    DEVICE,
    HOST,
    LOW,
    NONE_VALUE,
    OPAQUE,
    UNKNOWN,
    WORKSPACE,
    Cls,
    Const,
    Func,
    Recv,
    Seq,
    Value,
    join_all,
    replace,
)
from cachelint.signals import heed


class Machine(Calls):
    """Interprets the forward and backward of one type.

    ``settled`` holds the outcome of symbols from an earlier pass; the first pass has none.
    """

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
        """Interpret a body with its parameters bound; the join of what it returns."""
        if not entry and (len(self.stack) >= MAX_DEPTH or id(node) in self.stack):
            return Value(UNKNOWN, OPAQUE, join_deps(env.values()), sure=LOW)
        before = self.frame
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
            self.frame = before

    def block(self, body: list[ast.stmt]) -> bool:
        """Interpret statements; True when control cannot reach the end."""
        for statement in body:
            if self.frame.depth == 0:
                self.statement = statement
            self.steps += 1
            if self.steps > MAX_STEPS:
                self.exhausted = True
                raise Exhausted
            if not self.steps & 255:
                heed()  # the time limit of a file is a signal
            handler = _STATEMENTS.get(type(statement))
            if handler is not None and handler(self, statement):
                return True
        return False

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
        why = self.why(annotation, f"annotated {code_of(annotation)}")
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
            name = code_of(pattern.cls).rpartition(".")[2]
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

    def do_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        value = Value(HOST, ref=Func(node, self.frame.module, self.frame.owner, self.frame, is_kernel(node)))
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


_STATEMENTS: Final[dict[type, Any]] = {
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
