"""Which arrays a forward changes in place, and which variables may share their memory."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from functools import cached_property

from cachelint.collect.log import Mutation
from cachelint.fix.nodes.blocks import Blocks
from cachelint.index.walk import children, last_name, walk
from cachelint.infer.optable import operators

_NEW = frozenset(("elementwise", "rowstat", "expensive", "scan", "random", "constant", "empty", "host_value", "index"))
_ELEMENTS = frozenset(("zip", "enumerate", "list", "tuple", "reversed", "sorted", "iter", "next", "map", "filter"))
"""Builtins whose results hold what is in their arguments."""
_HOST_ATTRIBUTES = ("dtype", "shape", "ndim", "size", "device", "itemsize")


class Memory:
    """The in-place changes of one forward. ``pure`` tells which functions of the project only change arrays of their
    own."""

    def __init__(
        self,
        blocks: Blocks,
        mutations: Iterable[Mutation],
        inputs: str,
        pure: Callable[[ast.expr], bool],
        is_module: Callable[[str], bool],
    ) -> None:
        self.blocks = blocks
        self.is_module = is_module
        self.pure = pure
        self.inputs = inputs
        self.mutations = [m for m in mutations if m.phase == "forward"]

    @cached_property
    def direct(self) -> dict[str, set[ast.stmt]]:
        """By variable the statements that change its array."""
        found: dict[str, set[ast.stmt]] = {}
        flow = self.blocks.flow
        for statement in self.blocks.where:
            for key in self.blocks.changes(statement):
                if not any(key in self.blocks.changes(inner) for inner in self._below(statement)):
                    found.setdefault(key, set()).add(statement)
        careless = {m.function.rpartition(".")[2] for m in self.mutations if m.node not in flow.parents}
        for mutation in self.mutations:
            if mutation.node in flow.parents and mutation.name:
                key = _key(mutation.name, self.blocks.receiver)
                found.setdefault(key, set()).add(flow.statement(mutation.node))
            for root in mutation.value.roots:
                if root.startswith("p:") and mutation.node not in flow.parents:
                    found.setdefault(root[2:], set()).add(flow.node.body[0])
                elif root.startswith("p:"):
                    found.setdefault(root[2:], set()).add(flow.statement(mutation.node))
        for node in walk(flow.node):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not self.pure(node.func):
                if node.func.id in careless:
                    for arg in node.args:
                        if isinstance(arg, ast.Name) and not self.is_module(arg.id):
                            found.setdefault(arg.id, set()).add(flow.statement(node))
        return found

    def _below(self, statement: ast.stmt) -> list[ast.stmt]:
        return [n for n in walk(statement) if isinstance(n, ast.stmt) and n is not statement and n in self.blocks.where]

    @cached_property
    def pairs(self) -> list[tuple[set[str], set[str]]]:
        """What assignments make, and what that may share its memory with."""
        found: list[tuple[set[str], set[str]]] = []
        for node in walk(self.blocks.flow.node):
            if isinstance(node, ast.Assign):
                made = {key for target in node.targets for key in self._stored(target)}
                found.append((made, shared(node.value, self.blocks)))
            elif isinstance(node, (ast.For, ast.comprehension)):
                found.append((self._stored(node.target), shared(node.iter, self.blocks)))
        return found

    def _stored(self, target: ast.expr) -> set[str]:
        if isinstance(target, (ast.Tuple, ast.List)):
            return set().union(*(self._stored(e) for e in target.elts)) if target.elts else set()
        if isinstance(target, ast.Starred):
            return self._stored(target.value)
        return {self.blocks.key(target)} - {""}

    def group(self, names: Iterable[str]) -> frozenset[str]:
        """Some variables and all that may share memory with them."""
        found = set(names)
        while True:
            more: set[str] = set()
            for made, parts in self.pairs:
                more |= (parts if made & found else set()) | (made if parts & found else set())
            if more <= found:
                return frozenset(found)
            found |= more

    @cached_property
    def changed(self) -> frozenset[str]:
        """The variables whose arrays are changed in place under whatever name."""
        return self.group(self.direct)

    def trouble(self, read: Iterable[str], replayed: set[ast.stmt]) -> str:
        """A variable that can't be made again, since its array is changed otherwise than by the statements that are
        carried out again; empty if there is none."""
        for key in sorted(set(read) & self.changed):
            others = self.group([key]) - {key}
            if key not in self.direct or others & set(self.direct) or not self.direct[key] <= replayed:
                return key
        return ""


def _key(name: str, receiver: str) -> str:
    head, dot, tail = name.partition(".")
    return f"self.{tail.partition('.')[0]}" if dot and head == receiver else head


def shared(value: ast.expr, blocks: Blocks) -> set[str]:
    """The variables whose memory a value may share."""
    key = blocks.key(value)
    if key:
        return {key}
    if isinstance(value, (ast.BinOp, ast.Compare, ast.Constant, ast.UnaryOp)) or is_array_module(value):
        return set()
    if isinstance(value, ast.Call):
        dotted = blocks.library(value.func)
        func = value.func
        if new_from_kernel(value):
            return set()
        if dotted is not None and (operators().category(dotted) in _NEW or _is_copy(dotted, value)):
            return set()
        if dotted is None and isinstance(func, ast.Attribute):
            if operators().methods.get(func.attr) in _NEW or func.attr == "copy":
                return set()
        parts = [*value.args, *(k.value for k in value.keywords)]
        parts += [func.value] if isinstance(func, ast.Attribute) and dotted is None else []
        known = set().union(*(shared(part, blocks) for part in parts)) if parts else set()
        if isinstance(func, ast.Name) and func.id in _ELEMENTS:
            return known
        # What an unknown function makes of a field, and whether that is changed, the log of the class's writes tells.
        return {key for key in known if not key.startswith("self.")}
    if isinstance(value, ast.Subscript):
        return shared(value.value, blocks)
    if isinstance(value, ast.Attribute) and value.attr in _HOST_ATTRIBUTES:
        return set()
    below = [child for child in children(value) if isinstance(child, ast.expr)]
    return set().union(*(shared(child, blocks) for child in below)) if below else set()


def fresh(value: ast.expr, blocks: Blocks) -> bool:
    """Whether a value surely has memory of its own."""
    if isinstance(value, ast.Constant):
        return True
    return not shared(value, blocks) and isinstance(value, (ast.BinOp, ast.Compare, ast.UnaryOp, ast.Call))


def is_array_module(node: ast.AST) -> bool:
    """``backend.get_array_module(x)``."""
    return isinstance(node, ast.Call) and last_name(node.func) == "get_array_module"


def _is_copy(dotted: str, node: ast.Call) -> bool:
    """``xp.array(x)``, which copies where nobody asks it not to."""
    return dotted in ("numpy.array", "numpy.copy") and not any(k.arg == "copy" for k in node.keywords)


def new_from_kernel(node: ast.Call) -> bool:
    """``cuda.elementwise('T x, T y', 'T z', ...)(x, y)``: given the inputs alone, it makes the outputs."""
    kernel = node.func
    if not isinstance(kernel, ast.Call) or last_name(kernel.func) not in ("elementwise", "reduce") or not kernel.args:
        return False
    inputs = kernel.args[0].value if isinstance(kernel.args[0], ast.Constant) else None
    plain = not node.keywords and not any(isinstance(arg, ast.Starred) for arg in node.args)
    return isinstance(inputs, str) and plain and len(node.args) == len(inputs.split(","))
