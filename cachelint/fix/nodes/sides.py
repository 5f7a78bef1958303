"""The forwards and backwards of a function node: which name is which input, and what is retained."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from cachelint.fix.functions.fields import CannotPlan
from cachelint.fix.layers.view import ClassView, MethodView
from cachelint.index.walk import last_name, walk


@dataclass(frozen=True)
class Side:
    """One forward or backward. ``inputs`` is the parameter that holds the inputs as a tuple, empty where none does."""

    method: MethodView
    inputs: str

    @cached_property
    def unpacking(self) -> ast.Assign | None:
        """``x, t = inputs`` in the body, the first there is; None where the parameter is bound to something else."""
        if self.method.flow.bindings.get(self.inputs):
            return None
        return _unpacking(self.method, lambda value: isinstance(value, ast.Name) and value.id == self.inputs)

    @cached_property
    def positions(self) -> dict[str, int]:
        """The names that the unpacking gives to inputs, with their places."""
        if self.unpacking is None:
            return {}
        target = self.unpacking.targets[0]
        assert isinstance(target, (ast.Tuple, ast.List))
        return {e.id: n for n, e in enumerate(target.elts) if isinstance(e, ast.Name) and e.id != "_"}

    def place(self, node: ast.expr | None) -> int | None:
        """The place of the input that an expression of the body is: ``inputs[1]``, or a name from the unpacking that is
        still bound to it."""
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == self.inputs:
            index = node.slice.value if isinstance(node.slice, ast.Constant) else None
            bound = self.method.flow.bindings.get(self.inputs)
            return index if isinstance(index, int) and index >= 0 and not bound else None
        if isinstance(node, ast.Name) and node.id in self.positions:
            return self.positions[node.id] if self.still(node) else None
        return None

    def still(self, node: ast.Name) -> bool:
        """Whether a name from the unpacking has its input where it is read."""
        flow = self.method.flow
        others = [n for n in flow.bindings.get(node.id, ()) if flow.statement(n) is not self.unpacking]
        if not others:
            return True
        known = node in flow.parents and not flow.in_loop(node) and isinstance(node.ctx, ast.Load)
        return known and all(flow.top(node) <= flow.top(n) for n in others)

    def calls(self, name: str) -> list[ast.Call]:
        """The calls of a method of the node."""
        return self.method.calls.get(name, [])

    def returns_before(self, top: int) -> bool:
        """Whether a call may end before the statement of the body at ``top``."""
        return any(self.method.flow.top(item) < top for item in self.method.flow.returns)


@dataclass(frozen=True)
class Sides:
    """Both sides of a class. ``forwards`` leaves out the one for arrays that keep their own graph."""

    view: ClassView
    forwards: tuple[Side, ...]
    native: tuple[Side, ...]
    backwards: tuple[Side, ...]
    live: bool
    """Whether backward is given the inputs themselves (the older Function), and not what was retained."""


def sides_of(view: ClassView) -> Sides:
    """Read a class. Raises CannotPlan where it is written in another way than the contract has it."""
    unit = view.context.analysis.unit
    by_node = {id(method.node): method for method in view.methods.values()}
    every = (*unit.forward, *unit.backward)
    away = next((m for m in every if id(m.node) not in by_node), None)
    if away is not None:
        owner = away.owner.name if away.owner is not None else "another class"
        raise CannotPlan(f"`{away.node.name}` is inherited from `{owner}`", "inherited")
    if view.odd:
        raise CannotPlan(view.odd, "self escapes")
    live = not _is_node(view)
    forwards = [Side(by_node[id(m.node)], _parameter(by_node[id(m.node)], 0)) for m in unit.forward]
    backwards = [Side(by_node[id(m.node)], _parameter(by_node[id(m.node)], 0) if live else "") for m in unit.backward]
    for side in (*forwards, *backwards):
        if side.method.node.decorator_list or side.method.flow.generator:
            raise CannotPlan(f"`{side.method.name}` is wrapped by a decorator", "decorated")
    return Sides(
        view,
        tuple(s for s in forwards if s.method.name != "forward_chainerx"),
        tuple(s for s in forwards if s.method.name == "forward_chainerx"),
        tuple(backwards),
        live,
    )


def retained(sides: Sides) -> tuple[int, ...] | None:
    """The inputs that every forward retains, in order; None where none retains any. Raises CannotPlan."""
    found: set[tuple[int, ...] | None] = set()
    for side in sides.forwards:
        calls = retaining(side, sides.view)
        found |= {_numbers(call.args[0]) for call in calls} if calls else {None}
    if len(found) != 1:
        raise CannotPlan("the forwards retain different inputs", "retained in several ways")
    return found.pop()


def retaining(side: Side, view: ClassView) -> list[ast.Call]:
    """The calls by which a forward retains inputs, one on every path: its own, and those of the methods that it leaves
    its work to before. Raises CannotPlan."""
    own = _retains_once(side.method)
    flow = side.method.flow
    calls = [] if own is None else [own]
    for item in flow.returns:
        other = left_to(item, side, view)
        if own is not None and flow.top(item) < flow.top(own):
            late = _retains_once(other) if other is not None else None
            if (
                other is None
                or late is None
                or any(other.flow.top(r) < other.flow.top(late) for r in other.flow.returns)
            ):
                raise _several(side.method.name)
            calls.append(late)
        elif other is not None and other.calls.get("retain_inputs"):
            raise _several(side.method.name)
    return calls


def _retains_once(method: MethodView) -> ast.Call | None:
    """The one call of a method that retains inputs, None without one. Raises CannotPlan."""
    calls = method.calls.get("retain_inputs", [])
    if not calls:
        return None
    flow = method.flow
    plain = len(calls) == 1 and flow.is_top(flow.statement(calls[0])) and len(calls[0].args) == 1
    if not plain or _numbers(calls[0].args[0]) is None:
        raise _several(method.name)
    return calls[0]


def _several(name: str) -> CannotPlan:
    return CannotPlan(f"`{name}` does not retain one fixed set of inputs", "retained in several ways")


def left_to(item: ast.Return, side: Side, view: ClassView) -> MethodView | None:
    """The method that a forward leaves all its work to: ``return self.forward_cudnn(inputs)``."""
    call = item.value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.keywords:
        return None
    own = isinstance(call.func.value, ast.Name) and call.func.value.id == side.method.receiver
    given = len(call.args) == 1 and isinstance(call.args[0], ast.Name) and call.args[0].id == side.inputs
    return view.methods.get(call.func.attr) if own and given else None


def read_back(side: Side, name: str) -> ast.Assign | None:
    """``x, t = self.get_retained_inputs()`` in the body of a backward, None without one. Raises CannotPlan."""
    calls = side.calls(name)
    if not calls:
        return None
    found = _unpacking(side.method, lambda value: value is calls[0])
    if found is None or len(calls) > 1:
        raise CannotPlan(
            f"`{side.method.name}` reads back what was retained in another way", "read back in several ways"
        )
    return found


def _unpacking(method: MethodView, fits: Callable[[ast.expr], bool]) -> ast.Assign | None:
    """The first statement of the body that unpacks an expression that fits, without a star."""
    for statement in method.node.body:
        if (
            isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and callable(fits)
            and fits(statement.value)
        ):
            target = statement.targets[0]
            if isinstance(target, (ast.Tuple, ast.List)) and not any(isinstance(e, ast.Starred) for e in target.elts):
                return statement
    return None


def _numbers(node: ast.expr) -> tuple[int, ...] | None:
    if not isinstance(node, ast.Tuple):
        return None
    found = [e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, int)]
    return tuple(found) if len(found) == len(node.elts) else None


def _parameter(method: MethodView, place: int) -> str:
    return method.positional[place] if len(method.positional) > place else ""


def _is_node(view: ClassView) -> bool:
    """Whether a class derives from FunctionNode, whose backward gets no inputs."""
    return any(last_name(base) == "FunctionNode" for base in _bases(view))


def _bases(view: ClassView) -> Iterator[ast.expr]:
    for owner in view.context.analysis.machine.mro(view.info):
        yield from owner.node.bases


def hands_inputs_on(side: Side, view: ClassView) -> bool:
    """Whether a forward gives all of its inputs to another method of the node, which may do anything. One that it leaves
    all its work to is a path of its own."""
    calls = [item.value for item in side.method.flow.returns if left_to(item, side, view) is not None]
    for node in walk(side.method.node):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node not in calls
        ):
            if node.func.value.id == side.method.receiver:
                if any(isinstance(a, ast.Name) and a.id == side.inputs for a in node.args):
                    return True
    return False
