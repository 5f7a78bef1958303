"""What a backward calls the inputs that it needs, and the edits that give it those."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from cachelint.checks import TypeContext
from cachelint.fix.edits import After, Before, Edit, Extend, Replace, Text
from cachelint.fix.functions.fields import CannotPlan
from cachelint.fix.layers.view import ClassView
from cachelint.fix.nodes.replay import WHOLE
from cachelint.fix.nodes.sides import Side, Sides, read_back, retaining


@dataclass
class Retention:
    """What backward calls the inputs: by method of backward the code for each place, and the edits that make it so."""

    codes: dict[str, dict[int, str]] = field(default_factory=dict)
    after: dict[str, ast.stmt | None] = field(default_factory=dict)
    """By method the statement behind which the names are there; None for the top of the body."""
    first: dict[str, list[str]] = field(default_factory=dict)
    """By method the statements that read back."""
    edits: list[Edit] = field(default_factory=list)


def gained(
    places: Sequence[int], sides: Sides, kept: tuple[int, ...] | None, context: TypeContext, text: Text
) -> Retention:
    """What backward has to do to have these inputs. Raises CannotPlan."""
    out = Retention()
    if sides.live:
        for side in sides.backwards:
            names = {place: name for name, place in side.positions.items()}
            codes = {n: names.get(n, f"{side.inputs}[{n}]") for n in places if n != WHOLE}
            out.codes[side.method.name] = codes | ({WHOLE: side.inputs} if WHOLE in places else {})
            used = any(n in names for n in places)
            out.after[side.method.name] = side.unpacking if used else None
        return out
    missing = [place for place in places if place not in (kept or ())]
    for side in sides.forwards if missing else ():
        out.edits += _retain(side, sides.view, missing, kept, text)
    order = [*(kept or ()), *missing]
    for side in sides.backwards:
        out.codes[side.method.name] = _read(
            side, places, order, missing, out, _forward_names(context, sides.view), text
        )
    return out


def _retain(
    side: Side, view: ClassView, missing: Sequence[int], kept: tuple[int, ...] | None, text: Text
) -> list[Edit]:
    """The edits by which a forward retains more inputs."""
    if kept is not None:
        code = f"({', '.join(map(str, (*kept, *missing)))})"
        return [Replace(text.span(call.args[0]), code) for call in retaining(side, view)]
    own = ", ".join(map(str, missing))
    line = f"{side.method.receiver}.retain_inputs(({own}{',' if len(missing) == 1 else ''}))"
    flow = side.method.flow
    if side.unpacking is not None and not side.returns_before(flow.top(side.unpacking)):
        return [After(text.span(side.unpacking), (line,))]
    return [Before(text.span(side.method.node.body[flow.first]), (line,))]


def _read(
    side: Side,
    places: Sequence[int],
    order: Sequence[int],
    missing: Sequence[int],
    out: Retention,
    forward: dict[int, str],
    text: Text,
) -> dict[int, str]:
    """The code for each input in a backward that reads back what was retained. Raises CannotPlan."""
    flow, name = side.method.flow, side.method.name
    statement = read_back(side, "get_retained_inputs")
    taken: set[str] = set()
    codes: dict[int, str] = {}

    def fresh(place: int) -> str:
        local = flow.fresh(forward.get(place, f"x{place}"), taken)
        taken.add(local)
        return local

    if statement is None:
        locals_ = {place: fresh(place) if place in places else "_" for place in order}
        targets = ", ".join(locals_[place] for place in order) + ("," if len(order) == 1 else "")
        out.first[name] = [f"{targets} = {side.method.receiver}.get_retained_inputs()"]
        out.after[name] = None
        return {place: f"{locals_[place]}.array" for place in places}
    target = statement.targets[0]
    assert isinstance(target, (ast.Tuple, ast.List))
    if len(target.elts) + len(missing) != len(order):
        raise CannotPlan(f"`{name}` does not unpack what was retained", "read back in several ways")
    new: list[str] = []
    for number, place in enumerate(order):
        element = target.elts[number] if number < len(target.elts) else None
        if element is None:
            codes[place] = fresh(place)
            new.append(codes[place])
        elif isinstance(element, ast.Name) and element.id != "_":
            codes[place] = element.id
        elif place in places:
            raise CannotPlan(f"`{name}` drops an input that it needs", "read back in several ways")
    if new:
        out.edits.append(Extend(text.span(target), tuple(new)))
    out.after[name] = statement
    return {place: f"{codes[place]}.array" for place in places}


def _forward_names(context: TypeContext, view: ClassView) -> dict[int, str]:
    """What the first forward that unpacks its inputs calls them."""
    unit = context.analysis.unit
    for method in view.methods.values():
        if any(method.node is m.node for m in unit.forward) and method.positional:
            positions = Side(method, method.positional[0]).positions
            if positions:
                return {place: name for name, place in positions.items()}
    return {}
