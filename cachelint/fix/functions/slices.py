"""The shortest slice of forward that derives a value, to run it again in backward.

A slice is moved only when every step is known to be pure and cheap: operators of the table, arithmetic, shapes. It
stops at tensors that are saved anyway, then at forward's tensor inputs; host values that it needs stay on ctx.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cachelint.fix.functions.autocast import chooses
from cachelint.fix.functions.flow import Flow
from cachelint.fix.functions.scope import Routine
from cachelint.index.walk import code_of, walk
from cachelint.infer.optable import operators
from cachelint.infer.values import DEVICE, HOST, NONE, UNKNOWN

FULL, SMALL = 2, 1
"""The size of a value beside forward's inputs: as large as one, or clearly smaller."""

_ROWSTAT = frozenset(("rowstat", "host_value"))
_CHEAP = frozenset(("alias", "cast", "elementwise", "rowstat", "constant", "host_value"))
_NARROW = frozenset(["half", "bfloat16", "byte", "char", "bool", "int8", "uint8", "argmax", "argmin", "any", "all"])
_HOST_CALLS = frozenset(["int", "float", "bool", "len", "min", "max", "abs", "round", "tuple", "list"])
_PURE_METHODS = frozenset(
    ["size", "dim", "numel", "stride", "ndimension", "nelement", "is_floating_point", "is_complex"]
)
_IMPURE = frozenset(["item", "tolist", "numpy", "data_ptr", "detach", "data", "copy_", "clone", "cpu", "cuda"])


class NoSlice(Exception):
    """Why a value can't be derived again in backward."""


class OtherMode(NoSlice):
    """Autocast may choose another dtype in backward."""

    def __init__(self, operator: str) -> None:
        super().__init__(f"autocast may choose another dtype for `{operator}` in backward")
        self.operator = operator


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One assignment of a slice: of ``a, b = x, y`` those parts that are needed are steps of their own."""

    statement: ast.Assign
    target: ast.expr
    value: ast.expr


@dataclass
class Slice:
    """``steps`` are the assignments of forward to run, in order; ``value`` is the expression of the field itself.
    ``tensors`` are the names at which it stops, ``fields`` the other fields that it reads off the receiver, ``hosts`` the
    names of host values, which stay on ctx."""

    steps: list[Step] = field(default_factory=list)
    value: ast.expr | None = None
    tensors: list[str] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    size: int = FULL


Go = Callable[[ast.expr | None], int]
_Steps = dict[tuple[int, int], Step]
"""By the index of the statement in the body, and the place in it."""


@dataclass
class Slicer:
    """Slices one forward. ``kinds`` gives what each input is (a name of this function to bits of the value's kinds),
    ``saved`` the locals that are saved whatever happens."""

    routine: Routine
    kinds: Mapping[str, int]
    saved: frozenset[str]
    mutated: frozenset[str]
    externals: frozenset[str]
    dotted: Mapping[str, str]
    fields: Mapping[str, tuple[ast.expr, ast.stmt] | None] = field(default_factory=dict)
    """Fields that a slice may read: None for one that is in backward anyway, else its value and where it is written."""
    other_mode: bool = False
    """Whether autocast may be another in backward than in forward."""

    def slice(self, value: ast.expr, statement: ast.stmt, end: int) -> Slice:
        """The slice for ``value`` as it is at ``statement``; the tensors must still be bound to the same at the
        statement of the body at ``end``. Raises NoSlice."""
        flow = self.routine.flow
        if not flow.is_top(statement):
            raise NoSlice("it is set on some paths only")
        result = Slice(value=value)
        steps: _Steps = {}
        result.size = self.visit(value, flow.top(statement), end, result, steps, 0)
        result.steps = [steps[key] for key in sorted(steps)]
        for step in result.steps:
            for node in walk(step.target):
                if isinstance(node, ast.Name) and node.id in self.mutated:
                    raise NoSlice(f"`{node.id}` is changed in place")
        for name in result.tensors:
            if name in self.mutated:
                raise NoSlice(f"`{name}` is changed in place")
        if len(result.steps) > 12:
            raise NoSlice("it takes too many steps")
        return result

    # -- expressions -------------------------------------------------------------------------------------------------

    def visit(self, node: ast.expr, at: int, end: int, out: Slice, steps: _Steps, depth: int) -> int:
        """Check an expression, collect what it needs, and tell its size."""
        if depth > 60:
            raise NoSlice("it is nested too deeply")

        def go(part: ast.expr | None) -> int:
            return 0 if part is None else self.visit(part, at, end, out, steps, depth + 1)

        if isinstance(node, ast.Constant):
            return 0
        if isinstance(node, ast.Name):
            return self.name(node, at, end, out, steps, depth)
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.MatMult):
                raise NoSlice("it is a matrix product")
            left, right = go(node.left), go(node.right)
            if isinstance(node.op, ast.Pow) and (left or right):
                self.check_mode("pow")
            elif isinstance(node.op, ast.Div) and right and not left:
                self.check_mode("reciprocal")  # which is what a number divided by a tensor is
            return max(left, right)
        if isinstance(node, ast.UnaryOp):
            return go(node.operand)
        if isinstance(node, ast.Compare):
            sizes = [go(node.left), *(go(part) for part in node.comparators)]
            return min(max(sizes), SMALL)
        if isinstance(node, (ast.Tuple, ast.List)):
            return max((go(part) for part in node.elts), default=0)
        if isinstance(node, ast.Slice):
            for part in (node.lower, node.upper, node.step):
                go(part)
            return 0
        if isinstance(node, ast.Subscript):
            go(node.slice)
            return go(node.value)
        if isinstance(node, ast.IfExp):
            go(node.test)
            return max(go(node.body), go(node.orelse))
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == self.routine.receiver:
                return self.own_field(node, at, end, out, steps, depth)
            return self.attribute(node, go)
        if isinstance(node, ast.Call):
            return self.call(node, go)
        raise NoSlice(f"`{code_of(node)[:40]}` is not a plain tensor operation")

    def own_field(self, node: ast.Attribute, at: int, end: int, out: Slice, steps: _Steps, depth: int) -> int:
        """Another field of the receiver, which backward has as well."""
        if node.attr not in self.fields:
            raise NoSlice(f"it reads `{code_of(node)}`")
        if f"{self.routine.receiver}.{node.attr}" in self.mutated:
            raise NoSlice(f"`{code_of(node)}` is changed in place")
        _add(out.fields, node.attr)
        known = self.fields[node.attr]
        if known is None:
            return FULL
        value, statement = known
        index = self.routine.flow.top(statement)
        if index >= at:
            raise NoSlice(f"it reads `{code_of(node)}` before it is set")
        return self.visit(value, index, end, out, {}, depth + 1)

    def attribute(self, node: ast.Attribute, go: Go) -> int:
        """An attribute: of a library, or of a tensor."""
        table = operators()
        text = self.library(node)
        if text is not None:
            return 0
        if node.attr in table.host_attrs or node.attr in ("shape", "dtype", "device", "ndim"):
            go(node.value)
            return 0
        if node.attr in table.alias_attrs and node.attr not in _IMPURE:
            size: int = go(node.value)
            return size
        raise NoSlice(f"it reads `{code_of(node)[:40]}`")

    def call(self, node: ast.Call, go: Go) -> int:
        """A call of an operator of the table, or of a harmless builtin."""
        if any(isinstance(arg, ast.Starred) for arg in node.args) or any(k.arg is None for k in node.keywords):
            raise NoSlice("arguments are unpacked")
        if any(k.arg == "out" for k in node.keywords):
            raise NoSlice("it writes into a buffer")
        table = operators()
        sizes = [go(arg) for arg in node.args] + [go(k.value) for k in node.keywords]
        func = node.func
        if isinstance(func, ast.Name) and func.id in _HOST_CALLS and self.free(func.id):
            return 0
        dotted = self.library(func)
        if dotted is not None:
            category = table.category(dotted)
            if dotted.startswith("math."):
                return 0
            if category not in _CHEAP or dotted.endswith("_") or not dotted.startswith("torch."):
                raise NoSlice(f"`{dotted}` is not a cheap tensor operation of the table")
            self.check_mode(dotted.rpartition(".")[2])
            size = max(sizes, default=0)
            return min(size, SMALL) if category in _ROWSTAT else max(size, FULL if category == "constant" else 0)
        if isinstance(func, ast.Attribute):
            size = go(func.value)
            category = table.methods.get(func.attr)
            if func.attr in _PURE_METHODS:
                return 0
            if (
                func.attr in _IMPURE
                or category not in _CHEAP
                or (func.attr.endswith("_") and func.attr not in table.not_inplace)
            ):
                raise NoSlice(f"`.{func.attr}` is not a cheap tensor operation of the table")
            self.check_mode(func.attr)
            size = max([size, *sizes])
            if category in _ROWSTAT or func.attr in _NARROW:
                return min(size, SMALL)
            return size
        raise NoSlice(f"it calls `{code_of(func)[:40]}`")

    def check_mode(self, name: str) -> None:
        """Raise NoSlice for an operator that may compute in another dtype in backward."""
        if self.other_mode and chooses(name):
            raise OtherMode(name)

    def library(self, node: ast.expr) -> str | None:
        """The dotted name of something in a library (``torch.float32``, ``F.silu``), None for anything else."""
        parts: list[str] = []
        current = node
        while isinstance(current, ast.Attribute):
            parts.append(current.attr)
            current = current.value
        if not isinstance(current, ast.Name) or not self.free(current.id):
            return None
        head = self.dotted.get(current.id)
        if head is None:
            return None
        return ".".join([head, *reversed(parts)])

    def free(self, name: str) -> bool:
        """Whether a name means what the module binds, in forward and in backward."""
        flow = self.routine.flow
        return name not in flow.parameters and name not in flow.bindings and name not in self.externals

    # -- names -------------------------------------------------------------------------------------------------------

    def name(self, node: ast.Name, at: int, end: int, out: Slice, steps: _Steps, depth: int) -> int:
        """A name: saved anyway, an input, or made by an assignment of forward that becomes a step."""
        flow = self.routine.flow
        name = node.id
        definition = _definition(flow, name, at)
        if definition == "unknown":
            raise NoSlice(f"`{name}` is bound in more than one way")
        stays = not flow.rebound_between(name, _index(flow, definition), end)
        if name in self.saved and stays:
            _add(out.tensors, name)
            return FULL
        if definition is None:
            if name in flow.parameters or name in self.kinds:
                return self.input(name, stays, out)
            if self.free(name) and name in self.dotted:
                return 0
            if self.free(name) and name in _HOST_CALLS:
                return 0
            raise NoSlice(f"`{name}` is not one of forward's own values")
        assert isinstance(definition, ast.Assign)
        if name in self.kinds:  # setup_context takes its inputs apart
            return self.input(name, stays, out)
        index = flow.top(definition)
        target, value, place = _part(definition, name)
        if (index, place) not in steps:
            if not _plain_target(target):
                raise NoSlice(f"`{code_of(target)[:40]}` is not a plain name")
            steps[index, place] = Step(definition, target, value)
            self.sizes[id(value)] = self.visit(value, index, end, out, steps, depth + 1)
        return self.sizes[id(value)]

    sizes: dict[int, int] = field(default_factory=dict)

    def input(self, name: str, stays: bool, out: Slice) -> int:
        """An input of forward: a tensor to save, or a host value to keep."""
        kinds = self.kinds.get(name, UNKNOWN)
        if not stays:
            raise NoSlice(f"`{name}` is bound again before it could be saved")
        if kinds & DEVICE and not kinds & (HOST | UNKNOWN):
            _add(out.tensors, name)
            return FULL
        if kinds & (HOST | NONE) and not kinds & (DEVICE | UNKNOWN):
            _add(out.hosts, name)
            return 0
        raise NoSlice(f"nothing shows whether `{name}` is a tensor")


def _part(definition: ast.Assign, name: str) -> tuple[ast.expr, ast.expr, int]:
    """The target and value that bind ``name``, and their place in the assignment."""
    target, value = definition.targets[0], definition.value
    if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
        every = [*target.elts, *value.elts]
        if len(target.elts) == len(value.elts) and not any(isinstance(item, ast.Starred) for item in every):
            for place, (own, code) in enumerate(zip(target.elts, value.elts, strict=True)):
                if isinstance(own, ast.Name) and own.id == name:
                    return own, code, place
    return target, value, 0


def _add(names: list[str], name: str) -> None:
    if name not in names:
        names.append(name)


def _definition(flow: Flow, name: str, at: int) -> ast.Assign | str | None:
    """The assignment of the body that gives ``name`` its value before the statement at ``at``: None where it still is
    what it was at the start, ``unknown`` where that depends on the path."""
    bindings = [node for node in flow.bindings.get(name, ()) if flow.top(node) < at]
    if not bindings:
        return None
    index = max(flow.top(node) for node in bindings)
    statement = flow.node.body[index]
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return statement
    return "unknown"


def _index(flow: Flow, definition: ast.Assign | str | None) -> int:
    return flow.top(definition) if isinstance(definition, ast.Assign) else -1


def _plain_target(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple):
        return all(isinstance(item, ast.Name) for item in target.elts)
    return isinstance(target, ast.Name)
