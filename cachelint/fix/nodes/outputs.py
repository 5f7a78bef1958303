"""An output of forward on the node is retained as what it is."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from cachelint.fix.edits import Before, Edit, Replace, Text
from cachelint.fix.functions.fields import CannotPlan
from cachelint.fix.nodes.sides import Side, Sides, hands_inputs_on
from cachelint.index.walk import last_name


def check_output(name: str, sides: Sides) -> int:
    """The place of the output that a field is in every forward. Raises CannotPlan."""
    every = (*sides.forwards, *sides.native, *sides.backwards)
    loads = [use for side in every for use in sides.view.of("output_data", "load") if use.method is side.method]
    if loads or any(side.calls("retain_outputs") or side.calls("get_retained_outputs") for side in every):
        raise CannotPlan("outputs are retained already", "retained in several ways")
    places: set[int] = set()
    for side in sides.forwards:
        flow = side.method.flow
        stores = [use for use in sides.view.of(name, "store") if use.method is side.method]
        before, _ = flow.surely({use.statement for use in stores})
        late = any(not before.get(item, False) for item in flow.returns)
        looping = any(flow.in_loop(use.node) for use in stores)
        if not stores or late or looping or hands_inputs_on(side, sides.view):
            raise CannotPlan(f"`{side.method.name}` sets it on some paths only", "set on some paths")
        found = _returned(name, side)
        if found is None:
            raise CannotPlan(f"what `{side.method.name}` returns is not the very array", "not the output itself")
        places.add(found)
    if len(places) != 1:
        raise CannotPlan("the forwards return it in different places", "made in different ways")
    return places.pop()


def _returned(name: str, side: Side) -> int | None:
    flow = side.method.flow
    if len(flow.returns) != 1 or not flow.is_top(flow.returns[0]) or not isinstance(flow.returns[0].value, ast.Tuple):
        return None
    for place, element in enumerate(flow.returns[0].value.elts):
        node = element
        if isinstance(node, ast.Call) and last_name(node.func) == "force_array" and len(node.args) == 1:
            node = node if node.keywords else node.args[0]
        if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.value, ast.Name):
            if node.value.id == side.method.receiver:
                return place
    return None


def outputs(names: Sequence[str], sides: Sides, text: Text) -> list[Edit]:
    """The edits that retain the outputs and read them back."""
    order = sorted(names, key=lambda name: check_output(name, sides))
    places = ", ".join(str(check_output(name, sides)) for name in order) + ("," if len(order) == 1 else "")
    edits: list[Edit] = []
    for side in (*sides.forwards, *sides.native):
        taken: set[str] = set()
        for name in order:
            local = side.method.flow.fresh(name.lstrip("_") or name, taken)
            taken.add(local)
            uses = [use for use in sides.view.of(name) if use.method is side.method]
            edits += [Replace(text.span(use.node), local) for use in uses]
        if side in sides.forwards:
            line = f"{side.method.receiver}.retain_outputs(({places}))"
            edits.append(Before(text.span(side.method.flow.returns[0]), (line,)))
    for side in sides.backwards:
        loads = [use for name in order for use in sides.view.of(name, "load") if use.method is side.method]
        if not loads:
            continue
        flow = side.method.flow
        taken = set()
        locals_: dict[str, str] = {}
        for name in order:
            locals_[name] = flow.fresh(name.lstrip("_") or name, taken)
            taken.add(locals_[name])
        receiver = side.method.receiver
        if sides.live:
            lines = [f"{locals_[name]} = {receiver}.output_data[{check_output(name, sides)}]" for name in order]
        else:
            targets = ", ".join(locals_[name] for name in order) + ("," if len(order) == 1 else "")
            lines = [f"{targets} = {receiver}.get_retained_outputs()"]
        edits.append(Before(text.span(side.method.node.body[flow.first]), tuple(lines)))
        end = "" if sides.live else ".array"
        edits += [Replace(text.span(use.node), f"{locals_[use.node.attr]}{end}") for use in loads]
    return edits
