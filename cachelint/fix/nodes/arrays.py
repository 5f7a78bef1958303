"""Slices of a forward that works on arrays of numpy, cupy, or of whichever module ``get_array_module`` answers."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cachelint.collect.log import Mutation
from cachelint.fix.edits import Span, Text
from cachelint.fix.functions.slices import FULL, Go, NoSlice, Slice, Slicer, Step
from cachelint.fix.nodes.sides import Side
from cachelint.index.walk import children, last_name, walk
from cachelint.infer.optable import operators

_PURE = frozenset(("alias", "cast", "elementwise", "rowstat"))
_HOST_CALLS = frozenset(("int", "float", "bool", "len", "min", "max", "abs", "round", "tuple", "list", "range"))
_METHODS = frozenset(
    (
        "astype",
        "sum",
        "mean",
        "var",
        "std",
        "max",
        "min",
        "any",
        "all",
        "reshape",
        "ravel",
        "transpose",
        "copy",
        "squeeze",
    )
)
_MODULES = ("numpy.", "cupy.")
_HELPERS = frozenset(("chainer.utils.force_array",))


def is_array_module(node: ast.AST) -> bool:
    """``backend.get_array_module(x)``."""
    return isinstance(node, ast.Call) and last_name(node.func) == "get_array_module"


@dataclass
class ArraySlicer(Slicer):
    """Stops at the inputs of a forward; the tensors of a slice are their places, as text."""

    side: Side | None = None
    sizes: dict[int, int] = field(default_factory=dict)

    def visit(
        self, node: ast.expr, at: int, end: int, out: Slice, steps: dict[tuple[int, int], Step], depth: int
    ) -> int:
        """An input ends the slice; the module of an array is found again."""
        assert self.side is not None
        place = self.side.place(node)
        if place is not None:
            if isinstance(node, ast.Name) and node.id in self.mutated:
                raise NoSlice(f"`{node.id}` is changed in place")
            if self.side.inputs in self.mutated:
                raise NoSlice("an input is changed in place")
            if str(place) not in out.tensors:
                out.tensors.append(str(place))
            return FULL
        if is_array_module(node):
            return 0
        return super().visit(node, at, end, out, steps, depth)

    def library(self, node: ast.expr) -> str | None:
        """The dotted name of something in a library; ``xp.exp`` is numpy's."""
        root: ast.expr = node
        parts: list[str] = []
        while isinstance(root, ast.Attribute):
            parts.append(root.attr)
            root = root.value
        if isinstance(root, ast.Name) and parts and self.is_module(root.id):
            return ".".join(["numpy", *reversed(parts)])
        return super().library(node)

    def is_module(self, name: str) -> bool:
        """Whether a local of forward is the module of an array, and nothing else."""
        flow = self.routine.flow
        bound = flow.bindings.get(name, [])
        parent = flow.parents.get(bound[0]) if len(bound) == 1 else None
        return isinstance(parent, ast.Assign) and parent.targets == bound and is_array_module(parent.value)

    def attribute(self, node: ast.Attribute, go: Go) -> int:
        """An attribute: of the module of an array, of a library, or of an array."""
        if isinstance(node.value, ast.Name) and self.is_module(node.value.id):
            go(node.value)
            return 0
        return super().attribute(node, go)

    def call(self, node: ast.Call, go: Go) -> int:
        """A call of a pure function on arrays."""
        if any(isinstance(arg, ast.Starred) for arg in node.args) or any(k.arg is None for k in node.keywords):
            raise NoSlice("arguments are unpacked")
        if any(k.arg == "out" for k in node.keywords):
            raise NoSlice("it writes into a buffer")
        sizes = [go(arg) for arg in node.args] + [go(k.value) for k in node.keywords]
        func = node.func
        if isinstance(func, ast.Name) and func.id in _HOST_CALLS and self.free(func.id) and func.id not in self.dotted:
            return max(sizes, default=0)
        dotted = self.library(func)
        if dotted is not None:
            if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and self.is_module(func.value.id):
                go(func.value)
            pure = dotted.startswith(_MODULES) and operators().category(dotted) in _PURE
            if not pure and dotted not in _HELPERS:
                raise NoSlice(f"`{dotted}` is not a cheap array operation of the table")
            return max(sizes, default=0)
        if isinstance(func, ast.Attribute) and func.attr in _METHODS:
            return max([go(func.value), *sizes])
        raise NoSlice(f"it calls `{ast.unparse(func)[:40]}`")


def changed(slicer: ArraySlicer, mutations: Iterable[Mutation]) -> frozenset[str]:
    """The locals whose arrays forward changes in place, those that may share their memory included."""
    flow = slicer.routine.flow
    table = operators()
    names = {m.name for m in mutations if m.phase == "forward"}
    names |= {root[2:] for m in mutations if m.phase == "forward" for root in m.value.roots if root.startswith("p:")}
    sharing: list[tuple[set[str], set[str]]] = []
    for node in walk(flow.node):
        target: ast.expr | None = None
        if isinstance(node, ast.AugAssign):
            target = node.target
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            target = node.value
        elif isinstance(node, ast.Call):
            names |= {k.value.id for k in node.keywords if k.arg == "out" and isinstance(k.value, ast.Name)}
            dotted = slicer.library(node.func) or ""
            filled = node.args[:1] if table.category(dotted) == "inplace" or dotted in _FILL else []
            names |= {arg.id for arg in filled if isinstance(arg, ast.Name)}
        elif isinstance(node, ast.Assign):
            made = {name for t in node.targets for name in _stored(t)}
            sharing.append((made, _shared(node.value, slicer)))
        while isinstance(target, (ast.Attribute, ast.Subscript)):
            target = target.value
        if isinstance(target, ast.Name):
            names.add(target.id)
    while True:
        more: set[str] = set()
        for made, parts in sharing:
            more |= (parts if made & names else set()) | (made if parts & names else set())
        more -= names
        if not more:
            return frozenset(names)
        names |= more


_FILL = frozenset(("numpy.fill_diagonal", "numpy.copyto", "numpy.put", "numpy.place", "numpy.putmask"))
_NEW = frozenset(("elementwise", "rowstat", "expensive", "scan", "random", "constant", "empty", "host_value", "index"))


def _stored(target: ast.expr) -> set[str]:
    """The names that an assignment binds (not those whose items or attributes it sets)."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return set().union(*(_stored(e) for e in target.elts)) if target.elts else set()
    if isinstance(target, ast.Starred):
        return _stored(target.value)
    return {target.id} if isinstance(target, ast.Name) else set()


def _shared(value: ast.expr, slicer: ArraySlicer) -> set[str]:
    """The locals whose memory a value may share."""
    if isinstance(value, ast.Name):
        return {value.id}
    if isinstance(value, (ast.BinOp, ast.Compare, ast.Constant, ast.UnaryOp)) or is_array_module(value):
        return set()
    if isinstance(value, ast.Call):
        dotted = slicer.library(value.func)
        func = value.func
        if _new_from_kernel(value):
            return set()
        if dotted is not None and (operators().category(dotted) in _NEW or _is_copy(dotted, value)):
            return set()
        if dotted is None and isinstance(func, ast.Attribute) and operators().methods.get(func.attr) in _NEW:
            return set()
        parts = [*value.args, *(k.value for k in value.keywords)]
        parts += [func.value] if isinstance(func, ast.Attribute) and dotted is None else []
        return set().union(*(_shared(part, slicer) for part in parts)) if parts else set()
    if isinstance(value, ast.Subscript):
        return _shared(value.value, slicer)
    if isinstance(value, ast.Attribute) and value.attr in ("dtype", "shape", "ndim", "size", "device", "itemsize"):
        return set()
    below = [child for child in children(value) if isinstance(child, ast.expr)]
    return set().union(*(_shared(child, slicer) for child in below)) if below else set()


def _is_copy(dotted: str, node: ast.Call) -> bool:
    """``xp.array(x)``, which copies where nobody asks it not to."""
    return dotted in ("numpy.array", "numpy.copy") and not any(k.arg == "copy" for k in node.keywords)


def _new_from_kernel(node: ast.Call) -> bool:
    """``cuda.elementwise('T x, T y', 'T z', ...)(x, y)``: given the inputs alone, it makes the outputs."""
    maker = node.func
    if not isinstance(maker, ast.Call) or last_name(maker.func) not in ("elementwise", "reduce") or not maker.args:
        return False
    inputs = maker.args[0].value if isinstance(maker.args[0], ast.Constant) else None
    plain = not node.keywords and not any(isinstance(arg, ast.Starred) for arg in node.args)
    return isinstance(inputs, str) and plain and len(node.args) == len(inputs.split(","))


def code_of(
    node: ast.AST,
    side: Side,
    text: Text,
    inputs: Mapping[int, str],
    names: Mapping[str, str],
    fields: Mapping[str, str],
) -> str:
    """The text of an expression with inputs, locals and fields of forward named as backward has them."""
    changes: dict[Span, str] = {}
    first = next(iter(inputs.values()), "")

    def look(item: ast.AST) -> None:
        place = side.place(item) if isinstance(item, ast.expr) else None
        if place is not None and isinstance(item, ast.expr):
            changes[text.span(item)] = inputs[place]
        elif is_array_module(item):
            assert isinstance(item, ast.Call)
            changes[text.span(item)] = f"{text.source(item.func)}({first})"
        elif isinstance(item, ast.Name) and item.id in names:
            changes[text.span(item)] = names[item.id]
        elif _own(item, side) in fields:
            assert isinstance(item, ast.Attribute)
            changes[text.span(item)] = fields[item.attr]
        else:
            for child in children(item):
                look(child)

    look(node)
    return text.source(node, changes)


def _own(node: ast.AST, side: Side) -> str:
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == side.method.receiver
    return node.attr if own and isinstance(node, ast.Attribute) else ""


def names_in(node: ast.AST) -> set[str]:
    """Every name in a tree."""
    return {item.id for item in walk(node) if isinstance(item, ast.Name)}
