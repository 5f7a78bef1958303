"""Where the statements of a function stand, which variables each of them makes or changes, and how a block ends.

A variable is a local of the function, or a field of the receiver, under the key ``self.name``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cachelint.fix.functions.flow import Flow
from cachelint.index.walk import blocks, last_name, walk
from cachelint.infer.optable import operators

Library = Callable[[ast.expr], str | None]
"""The dotted name of what an expression means in a library."""

_CHANGING = frozenset(
    "append extend insert pop popitem remove clear update setdefault sort reverse fill partition resize put itemset "
    "setfield setflags byteswap".split()
)
"""Methods that change a container or an array."""
_FILL = frozenset(("numpy.fill_diagonal", "numpy.copyto", "numpy.put", "numpy.place", "numpy.putmask"))


@dataclass(frozen=True, slots=True, eq=False)
class Stand:
    """The block of a statement, its place there, and the statement or function that the block belongs to."""

    block: list[ast.stmt]
    index: int
    owner: ast.AST


class Blocks:
    """The blocks of one function (nested functions are no part of it), and the effects of its statements."""

    def __init__(
        self,
        flow: Flow,
        receiver: str,
        library: Library,
        is_inplace: Callable[[str], bool],
        followed: Callable[[ast.expr], bool],
        writes: Callable[[ast.expr], bool] = lambda func: False,
    ) -> None:
        self.flow = flow
        self.receiver = receiver
        self.library = library
        self.is_inplace = is_inplace
        self.followed = followed
        self.writes = writes
        self.where: dict[ast.stmt, Stand] = {}
        self._place(flow.node.body, flow.node)
        self._binds: dict[ast.stmt, frozenset[str]] = {}
        self._changes: dict[ast.stmt, frozenset[str]] = {}

    def _place(self, block: list[ast.stmt], owner: ast.AST) -> None:
        for index, statement in enumerate(block):
            self.where[statement] = Stand(block, index, owner)
            for inner in blocks_of(statement):
                self._place(inner, statement)

    def key(self, node: ast.AST) -> str:
        """The variable that an expression is, empty if it is none."""
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == self.receiver:
            return f"self.{node.attr}"
        return ""

    def root(self, node: ast.expr) -> str:
        """The variable whose array an item or attribute belongs to."""
        while isinstance(node, (ast.Subscript, ast.Attribute)) and not self.key(node):
            node = node.value
        return self.key(node)

    def binds(self, statement: ast.stmt) -> frozenset[str]:
        """The variables that a statement gives something new, those below it included."""
        found = self._binds.get(statement)
        if found is None:
            names: set[str] = set()
            for node in walk(statement):
                stored = isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Load)
                if stored and not isinstance(self.flow.parents.get(node), ast.AugAssign):
                    names.add(self.key(node))
                elif isinstance(node, (ast.Import, ast.ImportFrom)):
                    names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
                elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)):
                    names.add(node.name or "")
            found = self._binds[statement] = frozenset(names - {""})
        return found

    def changes(self, statement: ast.stmt) -> frozenset[str]:
        """The variables whose arrays a statement changes in place, those below it included."""
        found = self._changes.get(statement)
        if found is None:
            found = self._changes[statement] = frozenset(
                key for node in walk(statement) for key in self._changed(node) if key
            )
        return found

    def _changed(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.AugAssign):
            yield self.root(node.target)
        elif isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
            yield "" if self.key(node) else self.root(node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if isinstance(call.func, ast.Attribute) and self.library(call.func) is None:
                yield self.root(call.func.value)  # ``x.sort()``
            if not self.key(call.func) and not self.followed(call.func):
                yield from (self.key(arg) for arg in call.args)
        if isinstance(node, ast.Call):
            yield from (self.root(k.value) for k in node.keywords if k.arg == "out")
            yield from (self.root(arg) for arg in outputs(node, self.library(node.func) is None))
            if self.writes(node.func):
                yield from (self.root(arg) for arg in (*node.args, *(k.value for k in node.keywords)))
            if isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
                yield self.root(node.func.value)
            dotted = self.library(node.func) or ""
            kept = dotted == "numpy.nan_to_num" and any(k.arg == "copy" for k in node.keywords)
            if dotted in _FILL or self.is_inplace(dotted) or kept:
                yield from (self.root(arg) for arg in node.args[:1])

    def owners(self, statement: ast.stmt) -> Iterator[tuple[ast.AST, list[ast.stmt]]]:
        """What a statement stands in, from the inside, each with the block that holds it; the function comes last."""
        stand = self.where[statement]
        while True:
            yield stand.owner, stand.block
            if stand.owner is self.flow.node:
                return
            assert isinstance(stand.owner, ast.stmt)
            stand = self.where[stand.owner]

    def common(self, statements: list[ast.stmt]) -> tuple[list[ast.stmt], ast.AST]:
        """The innermost block that holds all of these statements, and what it belongs to."""
        chains = [list(self.owners(statement)) for statement in statements]
        for owner, block in chains[0]:
            if all(any(block is other for _, other in chain) for chain in chains[1:]):
                return block, owner
        raise AssertionError("no common block")

    def index_in(self, block: list[ast.stmt], statement: ast.stmt) -> int:
        """The place of the statement of ``block`` that holds ``statement``."""
        current = statement
        while self.where[current].block is not block:
            owner = self.where[current].owner
            assert isinstance(owner, ast.stmt)
            current = owner
        return self.where[current].index


def outputs(call: ast.Call, method: bool) -> list[ast.expr]:
    """The arrays that a call is to write into which are given by their place: ``xp.exp(x, y)``, ``x.clip(0, 1, y)``."""
    name, table = last_name(call.func), operators()
    if method and isinstance(call.func, ast.Attribute):
        count = table.method_out_places.get(name)
    elif method and (name in table.method_out_places or name == "abs"):
        return []  # a builtin, or a function of the program's own
    else:
        count = table.out_places.get(name)
    if count is None:
        return []
    return [arg for arg in call.args[count:] if not isinstance(arg, ast.Constant)]


def blocks_of(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks directly inside a statement; none for a nested function or class."""
    nested = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    return [] if nested else blocks(statement)


def terminates(block: list[ast.stmt]) -> bool:
    """Whether control never reaches the end of a block."""
    last = block[-1] if block else None
    if isinstance(last, ast.If):
        return terminates(last.body) and terminates(last.orelse)
    return isinstance(last, (ast.Return, ast.Raise))


def returning(statement: ast.AST) -> bool:
    """Whether a statement may end the call (an exception aside, after which nothing is read)."""
    return any(isinstance(node, ast.Return) for node in walk(statement))
