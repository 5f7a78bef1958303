"""A second reading of a function, by libcst: every use of its receiver.

The planner reads the standard library's tree, the rewriter changes libcst's. Before anything is changed, the uses that
the planner knows of are held against those that this walker sees in the tree to be changed; where the two differ, the
code is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import libcst as cst
from libcst.metadata import CodeRange


class Place(NamedTuple):
    """One use: ``kind`` and ``field`` as in :class:`cachelint.fix.edits.Claim`, where it begins."""

    kind: str
    field: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Names:
    """The receiver's name in a function, and the names that are not fields of it."""

    receiver: str
    api: frozenset[str] = frozenset()
    save: frozenset[str] = frozenset()
    read_back: frozenset[str] = frozenset()
    call_reads: bool = False
    """Whether what is saved is read back by a call (``ctx.saved_tensor()``)."""


def uses(
    function: cst.FunctionDef, names: Names, positions: Mapping[cst.CSTNode, CodeRange], offset: int = 0
) -> list[Place]:
    """Every use of the receiver in a function, nested functions included, in the order of the text.

    A call that hands the receiver on (``helper(ctx, x)``) is ``handed``, whatever it calls; ``offset`` is added to lines.
    """
    walker = _Walker(names, positions, offset)
    function.visit(walker)
    return sorted(walker.found, key=lambda place: (place.line, place.column, place.kind))


_BY_NAME = {"getattr": "load", "setattr": "store", "hasattr": "test", "delattr": "delete"}


class _Walker(cst.CSTVisitor):
    def __init__(self, names: Names, positions: Mapping[cst.CSTNode, CodeRange], offset: int) -> None:
        super().__init__()
        self.names = names
        self.positions = positions
        self.offset = offset
        self.found: list[Place] = []
        self.stored: set[cst.CSTNode] = set()
        self.deleted: set[cst.CSTNode] = set()
        self.augmented: set[cst.CSTNode] = set()
        self.known: set[cst.CSTNode] = set()
        self.depth = 0

    def note(self, kind: str, field: str, node: cst.CSTNode) -> None:
        start = self.positions[node].start
        self.found.append(Place(kind, field, start.line + self.offset, start.column))

    def is_receiver(self, node: cst.CSTNode) -> bool:
        return isinstance(node, cst.Name) and node.value == self.names.receiver

    # -- scopes and targets ------------------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        self.depth += 1
        return self.depth == 1 or not self.shadows(node.params)

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self.depth -= 1

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return not self.shadows(node.params)

    def shadows(self, params: cst.Parameters) -> bool:
        every = [*params.posonly_params, *params.params, *params.kwonly_params, params.star_arg, params.star_kwarg]
        return any(isinstance(p, cst.Param) and p.name.value == self.names.receiver for p in every)

    def visit_Param(self, node: cst.Param) -> bool:
        self.known.add(node.name)
        return True

    def target(self, node: cst.BaseExpression, into: set[cst.CSTNode]) -> None:
        if isinstance(node, (cst.Tuple, cst.List)):
            for element in node.elements:
                self.target(element.value, into)
        else:
            into.add(node)

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        self.target(node.target, self.stored)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        self.target(node.target, self.stored)

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        self.stored.add(node.target)
        self.augmented.add(node.target)

    def visit_For(self, node: cst.For) -> None:
        self.target(node.target, self.stored)

    def visit_CompFor(self, node: cst.CompFor) -> None:
        self.target(node.target, self.stored)

    def visit_AsName(self, node: cst.AsName) -> None:
        self.target(node.name, self.stored)

    def visit_Del(self, node: cst.Del) -> None:
        self.target(node.target, self.deleted)

    # -- uses --------------------------------------------------------------------------------------------------------

    def visit_Call(self, node: cst.Call) -> bool:
        func = node.func
        if isinstance(func, cst.Attribute) and self.is_receiver(func.value):
            name = func.attr.value
            if name in self.names.save or (name in self.names.read_back and self.names.call_reads):
                self.note("save" if name in self.names.save else "saved", name, node)
                self.known.add(func)
                self.known.add(func.value)
        first = node.args[0] if node.args else None
        if (
            isinstance(func, cst.Name)
            and func.value in _BY_NAME
            and first is not None
            and self.is_receiver(first.value)
        ):
            literal = node.args[1].value if len(node.args) > 1 else None
            text = literal.evaluated_value if isinstance(literal, cst.SimpleString) else None
            if first.keyword is None and isinstance(text, str):
                kind = "test" if func.value == "getattr" and len(node.args) > 2 else _BY_NAME[func.value]
                self.note(kind, text, node)
                self.known.add(first.value)
            return True
        for arg in node.args:
            if self.is_receiver(arg.value) and not arg.star:
                self.note("handed", "*", arg.value)
                self.known.add(arg.value)
        return True

    def visit_Comparison(self, node: cst.Comparison) -> None:
        only = node.comparisons[0] if len(node.comparisons) == 1 else None
        if self.is_receiver(node.left) and only is not None and isinstance(only.operator, (cst.Is, cst.IsNot)):
            if isinstance(only.comparator, cst.Name) and only.comparator.value == "None":
                self.known.add(node.left)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        if not self.is_receiver(node.value):
            node.value.visit(self)
            return False
        if node in self.known:
            return False
        self.known.add(node.value)
        name = node.attr.value
        if name in self.names.save or (name in self.names.read_back and self.names.call_reads):
            self.note("escape", "*", node)
        elif name in self.names.read_back:
            self.note("saved", name, node)
        elif name in self.names.api:
            self.note("api", name, node)
        elif name in ("__dict__", "__class__"):
            self.note("escape", "*", node)
        elif node in self.deleted:
            self.note("delete", name, node)
        elif node in self.stored:
            if node in self.augmented:
                self.note("load", name, node)
            self.note("store", name, node)
        else:
            self.note("load", name, node)
        return False

    def visit_Name(self, node: cst.Name) -> None:
        if self.is_receiver(node) and node not in self.known:
            self.note("escape", "*", node)

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False  # not the keyword's name

    def visit_NameItem(self, node: cst.NameItem) -> bool:
        return False  # global and nonlocal declarations
