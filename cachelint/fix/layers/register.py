"""Hand a field to the saver where it is made."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from cachelint.fix.edits import After, Edit
from cachelint.fix.functions.fields import CannotPlan
from cachelint.fix.layers.view import FORWARD, ClassView, MethodView, Use, is_empty
from cachelint.infer.values import DEVICE, HOST, LOW, NONE, UNKNOWN, Inst, Seq, Value, join


@dataclass(frozen=True, slots=True)
class Saved:
    """An argument of the save call: its code, and a doubt that makes the fix unsafe (empty if there is none)."""

    name: str
    code: str
    doubt: str = ""


def argument(view: ClassView, name: str) -> Saved:
    """How a field is registered. Raises CannotPlan where it can't be."""
    receiver = view.forward.receiver if view.forward is not None else "self"
    value = _value(view, name)
    own = f"{receiver}.{name}"
    if value is None:
        raise CannotPlan("it is not written through the receiver's name", "indirect write", name)
    if isinstance(value.ref, Inst):
        raise CannotPlan(
            f"it is an object of class {value.ref.info.name} that owns tensors: that class has to register them",
            "object",
            name,
        )
    if isinstance(value.ref, Seq) or "container" in value.tags:
        return Saved(name, _spread(view, name, own, value))
    if value.kinds & UNKNOWN and not value.kinds & DEVICE:
        return Saved(name, own, "nothing shows whether it is a tensor")
    if value.kinds & HOST:
        raise CannotPlan(
            "on some path it may hold a host value, which the saver does not take", "may be a host value", name
        )
    return Saved(name, own, "nothing but its name or its use suggests that it is a tensor" if value.sure == LOW else "")


def _value(view: ClassView, name: str) -> Value | None:
    value: Value | None = None
    for write in view.context.analysis.log.writes:
        if write.field == name and write.phase == "forward":
            value = write.value if value is None else join(value, write.value)
    return value


def _spread(view: ClassView, name: str, own: str, value: Value) -> str:
    seq = value.ref if isinstance(value.ref, Seq) else None
    if seq is not None:
        for element in seq.each():
            if isinstance(element.ref, (Seq, Inst)):
                raise CannotPlan("it is a container of containers", "nested container", name)
            if element.kinds & HOST:
                raise CannotPlan("tensors and host values are mixed in it", "mixed container", name)
    stores = [use.value for use in view.of(name, "store") if use.value is not None]
    keyed = any(isinstance(v, (ast.Dict, ast.DictComp)) or _called(v) == "dict" for v in stores)
    listed = any(isinstance(v, (ast.List, ast.ListComp, ast.Tuple)) or _called(v) in ("list", "tuple") for v in stores)
    if keyed == listed:
        keyed = seq is not None and seq.keys is not None and seq.items is None
        if not keyed and (seq is None or seq.keys is not None):
            raise CannotPlan("nothing shows whether it is a list or a dict", "unknown container", name)
    if value.kinds & NONE:
        raise CannotPlan("it is a container on some paths and None on others", "optional container", name)
    return f"*{own}.values()" if keyed else f"*{own}"


def _called(node: ast.expr) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where a field is complete: behind a statement of a method."""

    method: MethodView
    statement: ast.stmt
    top: int
    name: str


def anchors(view: ClassView, name: str) -> list[Anchor]:
    """Behind which statements a field has its value: one a method where every path gives it one, else one a branch.
    Raises CannotPlan."""
    found: list[Anchor] = []
    uses = [u for u in view.of(name, "store", "change") if FORWARD in u.method.roles]
    for method in {id(u.method): u.method for u in uses}.values():
        own = [u for u in uses if u.method is method]
        if any(method.flow.nested(u.node) for u in own):
            raise CannotPlan("a nested function writes it", "nested write", name)
        made = [u for u in own if u.kind == "change" or not is_empty(u.value)]
        if made:
            found += _in_method(method, own, made, name)
    if not found:
        raise CannotPlan("it is not written through the receiver's name", "indirect write", name)
    return found


def _in_method(method: MethodView, own: Sequence[Use], made: Sequence[Use], name: str) -> list[Anchor]:
    flow = method.flow
    for use in made:
        if (
            isinstance(use.statement, (ast.Return, ast.For, ast.With, ast.AsyncFor, ast.AsyncWith))
            and use.kind == "store"
        ):
            raise CannotPlan(f"it is set inside another statement (line {use.node.lineno})", "indirect write", name)
    last = max(flow.top(use.statement) for use in made)
    changed = any(use.kind == "change" for use in made)
    marks = {use.statement for use in own if use.kind == "store"}
    before, end = flow.surely(marks)
    body = method.node.body
    after = bool(before.get(body[last + 1], False)) if last + 1 < len(body) else bool(end)
    left = any(flow.top(made[0].statement) <= flow.top(item) <= last for item in flow.returns)
    if (after or changed) and not left and not isinstance(body[last], ast.Return):
        return [Anchor(method, body[last], last, name)]
    if changed:
        raise CannotPlan("forward may leave before the container is complete", "container on some paths", name)
    return [Anchor(method, use.statement, flow.top(use.statement), name) for use in made]


def calls(view: ClassView, arguments: Sequence[Saved], width: int) -> list[Edit]:
    """The save calls for some fields: those that are complete at nearby places share one. Raises CannotPlan."""
    by_name = {item.name: item for item in arguments}
    every = [anchor for item in arguments for anchor in anchors(view, item.name)]
    edits: list[Edit] = []
    for method in {id(a.method): a.method for a in every}.values():
        own = sorted((a for a in every if a.method is method), key=lambda a: (a.top, a.statement.lineno))
        for group in _runs(own, method):
            codes = list(dict.fromkeys(by_name[a.name].code for a in group))
            place = max((a.statement for a in group), key=lambda s: (s.end_lineno or s.lineno, s.lineno))
            edits.append(
                After(view.text.span(place), _call(method.receiver, view.save, codes, place.col_offset, width))
            )
    return edits


def _runs(own: Sequence[Anchor], method: MethodView) -> list[list[Anchor]]:
    """Anchors of one block between which control can't leave."""
    groups: list[list[Anchor]] = []
    flow = method.flow
    for anchor in own:
        parent = flow.parents.get(anchor.statement)
        home = None
        for group in groups:
            first = group[0].statement
            if flow.parents.get(first) is parent and _arm(first, parent) == _arm(anchor.statement, parent):
                low, high = first.lineno, anchor.statement.lineno
                if not any(low <= item.lineno <= high for item in flow.returns):
                    home = group
        if home is None:
            groups.append([anchor])
        else:
            home.append(anchor)
    return groups


def _arm(statement: ast.stmt, parent: ast.AST | None) -> str:
    for name in ("body", "orelse", "finalbody"):
        if statement in getattr(parent, name, ()):
            return name
    return ""


def _call(receiver: str, save: str, codes: Sequence[str], indent: int, width: int) -> tuple[str, ...]:
    one = f"{receiver}.{save}({', '.join(codes)})"
    if indent + len(one) <= width:
        return (one,)
    filled = f"    {', '.join(codes)}"
    if indent + len(filled) <= width and not any(code.startswith("*") for code in codes):
        return (f"{receiver}.{save}(", filled, ")")
    return (f"{receiver}.{save}(", *(f"    {code}," for code in codes), ")")
