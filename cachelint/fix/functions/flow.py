"""Facts about one function's body: parents, bindings, what has surely happened before a statement."""

from __future__ import annotations

import ast
import builtins
import keyword
from collections.abc import Iterable
from functools import cached_property

from cachelint.index.module import FunctionNode
from cachelint.index.walk import children, parents, walk

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NAMING = frozenset(
    (
        ast.arg,
        ast.alias,
        ast.Global,
        ast.Nonlocal,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
        ast.Import,
        ast.ImportFrom,
        ast.ExceptHandler,
        ast.MatchAs,
        ast.MatchStar,
    )
)
"""What means something by a name, names aside: most nodes are neither, and are asked no further."""
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


class Flow:
    """One function, read once. Statements of nested functions are not part of it; names used there are."""

    def __init__(self, node: FunctionNode) -> None:
        self.node = node
        self.parents = parents(node)

    # -- places ------------------------------------------------------------------------------------------------------

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement of this function (not of a nested one) around a node."""
        found: ast.stmt | None = None
        current: ast.AST | None = node
        while current is not None and current is not self.node:
            if isinstance(current, ast.stmt) and (found is None or isinstance(current, _SCOPES)):
                found = current
            current = self.parents.get(current)
        assert found is not None
        return found

    def top(self, node: ast.AST) -> int:
        """The index of the statement of the function's own body that holds a node."""
        current = node
        while self.parents[current] is not self.node:
            current = self.parents[current]
        return self.node.body.index(current) if current in self.node.body else -1

    def is_top(self, statement: ast.stmt) -> bool:
        """Whether a statement stands in the function's own body."""
        return self.parents.get(statement) is self.node

    def nested(self, node: ast.AST) -> bool:
        """Whether a node lies in a function inside this one."""
        current = self.parents.get(node)
        while current is not None and current is not self.node:
            if isinstance(current, _SCOPES):
                return True
            current = self.parents.get(current)
        return False

    def in_loop(self, node: ast.AST) -> bool:
        """Whether a node may run more than once a call."""
        current = self.parents.get(node)
        while current is not None and current is not self.node:
            if isinstance(current, (*_LOOPS, *_COMPREHENSIONS)):
                return True
            current = self.parents.get(current)
        return False

    @cached_property
    def first(self) -> int:
        """The index of the first statement behind the docstring (the length of the body when there is none)."""
        head = self.node.body[0]
        documented = (
            isinstance(head, ast.Expr) and isinstance(head.value, ast.Constant) and isinstance(head.value.value, str)
        )
        return 1 if documented else 0

    @cached_property
    def returns(self) -> list[ast.Return]:
        """The function's own return statements, in the order of the text."""
        found = [item for item in self.own if isinstance(item, ast.Return)]
        return sorted(found, key=lambda item: item.lineno)

    @cached_property
    def generator(self) -> bool:
        """Whether the function is a generator or a coroutine."""
        return isinstance(self.node, ast.AsyncFunctionDef) or any(
            isinstance(item, (ast.Yield, ast.YieldFrom, ast.Await)) for item in self.own
        )

    @cached_property
    def own(self) -> tuple[ast.AST, ...]:
        """Every node of the body that isn't inside a nested function."""
        found: list[ast.AST] = []
        todo: list[ast.AST] = list(self.node.body)
        while todo:
            item = todo.pop()
            found.append(item)
            if not isinstance(item, _SCOPES):
                todo += children(item)
        return tuple(found)

    # -- names -------------------------------------------------------------------------------------------------------

    @cached_property
    def parameters(self) -> frozenset[str]:
        """The names of the parameters."""
        spec = self.node.args
        every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
        return frozenset(arg.arg for arg in every if arg is not None)

    @cached_property
    def used(self) -> frozenset[str]:
        """Every name that means something anywhere in the function, nested functions included."""
        names: set[str] = set(self.parameters)
        for item in walk(self.node):
            if isinstance(item, ast.Name):
                names.add(item.id)
            elif type(item) not in _NAMING:
                continue
            elif isinstance(item, ast.arg):
                names.add(item.arg)
            elif isinstance(item, (ast.Global, ast.Nonlocal)):
                names.update(item.names)
            elif isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names.add(item.name)
            elif isinstance(item, ast.alias):
                names.add((item.asname or item.name).partition(".")[0])
            elif (isinstance(item, ast.ExceptHandler) and item.name) or (
                isinstance(item, (ast.MatchAs, ast.MatchStar)) and item.name
            ):
                names.add(item.name)
        return frozenset(names)

    @cached_property
    def bindings(self) -> dict[str, list[ast.AST]]:
        """Where the function binds, deletes or declares each of its local names (parameters aside)."""
        found: dict[str, list[ast.AST]] = {}
        for item in self.own:
            if isinstance(item, ast.Name) and not isinstance(item.ctx, ast.Load):
                if not self.in_comprehension(item):
                    found.setdefault(item.id, []).append(item)
            elif type(item) not in _NAMING:
                continue
            elif isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.setdefault(item.name, []).append(item)
            elif isinstance(item, (ast.Import, ast.ImportFrom)):
                for alias in item.names:
                    found.setdefault((alias.asname or alias.name).partition(".")[0], []).append(item)
            elif (isinstance(item, ast.ExceptHandler) and item.name) or (
                isinstance(item, (ast.MatchAs, ast.MatchStar)) and item.name
            ):
                found.setdefault(item.name, []).append(item)
            elif isinstance(item, (ast.Global, ast.Nonlocal)):
                for name in item.names:
                    found.setdefault(name, []).append(item)
        for scope in walk(self.node):
            if isinstance(scope, ast.Nonlocal):
                for name in scope.names:
                    found.setdefault(name, []).append(scope)
        return found

    def in_comprehension(self, node: ast.Name) -> bool:
        """Whether a stored name is the target of a comprehension (a scope of its own)."""
        current = self.parents.get(node)
        while isinstance(current, (ast.Tuple, ast.List, ast.Starred)):
            current = self.parents.get(current)
        return isinstance(current, ast.comprehension)

    def loads(self, name: str) -> list[ast.Name]:
        """Where a name is read, nested functions included."""
        return [n for n in walk(self.node) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]

    def rebound_between(self, name: str, start: int, end: int) -> bool:
        """Whether a name is bound or deleted by a statement of the body with an index in ``(start, end]``."""
        return any(start < self.top(node) <= end for node in self.bindings.get(name, ()))

    def fresh(self, wanted: str, taken: Iterable[str] = ()) -> str:
        """A name like ``wanted`` that the function does not use. Never one that means something by its underscores."""
        busy = self.used | set(taken)
        wanted = plain_name(wanted)
        stem = wanted if wanted.isidentifier() and not keyword.iskeyword(wanted) else "value"
        for candidate in (stem, f"saved_{stem.lstrip('_')}", *(f"saved_{stem.lstrip('_')}_{n}" for n in range(2, 99))):
            if candidate not in busy and not keyword.iskeyword(candidate) and candidate not in _BUILTINS:
                return candidate
        raise AssertionError("no name is free")

    # -- what has happened -------------------------------------------------------------------------------------------

    def surely(self, marks: set[ast.stmt]) -> tuple[dict[ast.stmt, bool], bool | None]:
        """For each statement whether one of ``marks`` has surely run before it; then the same for the end of the
        function, None when control cannot reach it."""
        before: dict[ast.stmt, bool] = {}

        def block(body: list[ast.stmt], state: bool) -> bool | None:
            current: bool | None = state
            for statement in body:
                if current is None:
                    before[statement] = True
                    continue
                current = step(statement, current)
            return current

        def both(*states: bool | None) -> bool | None:
            live = [state for state in states if state is not None]
            return all(live) if live else None

        def step(node: ast.stmt, state: bool) -> bool | None:
            before[node] = before.get(node, True) and state
            if node in marks:
                state = True
            if isinstance(node, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
                return None
            if isinstance(node, ast.If):
                return both(block(node.body, state), block(node.orelse, state))
            if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
                block(node.body, state)
                after = block(node.orelse, state)
                return state if after is None and _breaks(node) else after
            if isinstance(node, (ast.With, ast.AsyncWith)):
                return block(node.body, state)
            if isinstance(node, (ast.Try, ast.TryStar)):
                after = block(node.body, state)
                if after is not None:
                    after = block(node.orelse, after)
                handled = [block(handler.body, state) for handler in node.handlers]
                joined = both(after, *handled)
                if not node.finalbody:
                    return joined
                final = block(node.finalbody, state)
                return None if final is None or joined is None else joined or final
            if isinstance(node, ast.Match):
                arms = [block(case.body, state) for case in node.cases]
                open_end = not any(_catches_all(case) for case in node.cases)
                return both(*arms, state) if open_end else both(*arms)
            return state

        end = block(self.node.body, False)
        return before, end


def _breaks(node: ast.stmt) -> bool:
    return any(isinstance(item, ast.Break) for item in walk(node))


def _catches_all(case: ast.match_case) -> bool:
    pattern = case.pattern
    return case.guard is None and isinstance(pattern, ast.MatchAs) and pattern.pattern is None


def plain_name(name: str) -> str:
    """A name without underscores that mean something: ``_`` alone, or two in front, which a class mangles."""
    return name.lstrip("_") or "value" if name.startswith("__") or name == "_" else name


_BUILTINS = frozenset(dir(builtins))
