"""What becomes of the fields in the forwards and in the constructor: locals, flags, or nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from cachelint.fix.edits import After, Before, Edit, Replace, Rewrite
from cachelint.fix.layers.view import ClassView, Use, is_none
from cachelint.fix.nodes.derived import FLAGGED, Derived, Deriver, Made
from cachelint.fix.nodes.replay import EMPTY, GIVEN
from cachelint.fix.nodes.sides import Side
from cachelint.index.walk import walk


def flags(derived: Sequence[Derived], view: ClassView) -> dict[str, str]:
    """By field the flag that notes that forward made it; fields that are set together share one."""
    found: dict[str, str] = {}
    by_blocks: dict[tuple[int, ...], str] = {}
    for item in derived:
        if item.when == FLAGGED:
            together = tuple(sorted(id(made.block) for made in item.every))
            if together not in by_blocks:
                by_blocks[together] = view.fresh_method(f"has_{item.name.lstrip('_') or item.name}")
            found[item.name] = by_blocks[together]
    return found


def in_forward(
    side: Side, derived: Sequence[Derived], pure: bool, flagged: Mapping[str, str], deriver: Deriver
) -> list[Edit]:
    """Fields become locals of a forward, or go where it has no other use for them and making them does nothing else."""
    text, view, flow = deriver.text, deriver.view, side.method.flow
    edits: list[Edit] = []
    taken: set[str] = set()
    notes = _notes(side, derived, flagged)
    noted: set[ast.stmt] = set()
    undone: dict[str, list[ast.stmt]] = {}

    def begun(use: Use) -> set[str]:
        """The flags that are taken back in the same block already."""
        near = flow.parents.get(use.statement)
        return {flag for flag, done in undone.items() if any(flow.parents.get(item) is near for item in done)}

    for item in derived:
        uses = [use for use in view.of(item.name) if use.method is side.method]
        stores = [use for use in uses if use.kind == "store" and not isinstance(use.statement, ast.AugAssign)]
        others = [use for use in uses if use not in stores]
        existing = _named(stores, others, side) if pure else ""
        for use in stores:
            line = (f"{side.method.receiver}.{notes[use.statement]} = True",) if use.statement in notes else ()
            if is_none(use.value) and item.name in flagged and flagged[item.name] not in begun(use):
                line = (f"{side.method.receiver}.{flagged[item.name]} = False",)
                undone.setdefault(flagged[item.name], []).append(use.statement)
            if pure and use.plain and (not others or existing or _idle(use, stores, others, side)):
                edits.append(Rewrite(text.span(use.statement), line))
                noted.add(use.statement)
                uses = [other for other in uses if other is not use]
        if not uses:
            continue
        local = existing or flow.fresh(item.name.lstrip("_") or item.name, taken)
        taken.add(local)
        edits += [Replace(text.span(use.node), local) for use in uses]
        before, _ = flow.surely({use.statement for use in stores if not is_none(use.value)})
        if not existing and any(not before.get(use.statement, False) for use in others):
            default = deriver.before(item.name)
            if default in (EMPTY, GIVEN):
                code = "None" if default == EMPTY else f"{side.method.receiver}.{item.name}"
                edits.append(Before(text.span(side.method.node.body[flow.first]), (f"{local} = {code}",)))
    for statement, flag in notes.items():
        if statement not in noted:
            edits.append(After(text.span(statement), (f"{side.method.receiver}.{flag} = True",)))
    return edits


def _notes(side: Side, derived: Sequence[Derived], flagged: Mapping[str, str]) -> dict[ast.stmt, str]:
    """By statement behind which a flag is set the flag."""
    last: dict[str, ast.stmt] = {}
    for item in derived:
        made: Made | None = next((m for m in item.every if m.side.method is side.method), None)
        if item.name in flagged and made is not None:
            flag = flagged[item.name]
            if flag not in last or made.last.lineno > last[flag].lineno:
                last[flag] = made.last
    return {statement: flag for flag, statement in last.items()}


def _named(stores: Sequence[Use], others: Sequence[Use], side: Side) -> str:
    """The local that a field is in any case, when it is one from there on."""
    flow = side.method.flow
    value = stores[0].value if len(stores) == 1 and stores[0].plain else None
    if not isinstance(value, ast.Name) or any(use.kind != "load" for use in others):
        return ""
    bound = flow.bindings.get(value.id, [])
    at = flow.top(stores[0].statement)
    before, _ = flow.surely({stores[0].statement})
    late = any(flow.top(node) >= at for node in bound)
    if not bound or late or any(not before.get(use.statement, False) for use in others):
        return ""
    return value.id


def _idle(store: Use, stores: Sequence[Use], others: Sequence[Use], side: Side) -> bool:
    """Whether nobody reads the None that a statement gives a field."""
    if not is_none(store.value):
        return False
    before, _ = side.method.flow.surely({use.statement for use in stores if not is_none(use.value)})
    return all(before.get(use.statement, False) for use in others)


def constructor(
    derived: Sequence[Derived], names: Sequence[str], flagged: Mapping[str, str], deriver: Deriver
) -> list[Edit]:
    """Drop the Nones that the constructor and the class give to fields that go; a flag begins as False."""
    text, view = deriver.text, deriver.view
    edits: list[Edit] = []
    begun: set[str] = set()
    given = {name for item in derived for name in item.given}
    for name in names:
        if name in given:
            continue
        flag = flagged.get(name, "")
        built: list[ast.stmt] = [u.statement for u in view.of(name, "store") if u.method.name == "__init__"]
        above: list[ast.stmt] = [s for s in deriver.class_values(name) if is_none(s.value) and len(s.targets) == 1]
        for statement in (*built, *above):
            receiver = "" if statement in above else next(_receivers(statement))
            line = (f"{receiver}{flag} = False",) if flag and flag not in begun else ()
            begun.add(flag)
            edits.append(Rewrite(text.span(statement), line))
    return edits


def _receivers(statement: ast.stmt) -> Iterator[str]:
    for node in walk(statement):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}."
