"""Where the save-for-backward contract comes from, and the edits that make a class take part in it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from cachelint.fix.edits import After, Before, Edit, Extend, Rewrite, Text
from cachelint.fix.layers.view import ClassView

RUNTIME = "cachelint.runtime"
HINT = (
    "which package the contract comes from is not configured: set module, base and save in [tool.cachelint.contract] "
    f"(taken here: {RUNTIME})"
)


@dataclass(frozen=True, slots=True)
class Contract:
    """The module and the base class to import. ``doubt`` says why nobody can know, empty where it is known."""

    module: str
    base: str
    doubt: str = ""


def contract_of(view: ClassView) -> Contract:
    """The contract of a class: the configured one, or that of the runtime that it derives from."""
    spec = view.context.settings.contract
    if spec.module:
        return Contract(spec.module, spec.base)
    known = view.context.report.dialect == "graph-node" and RUNTIME in " ".join(
        view.context.analysis.unit.dialect.bases
    )
    return Contract(RUNTIME, spec.base, "" if known else HINT)


def takes_part(view: ClassView, contract: Contract) -> bool:
    """Whether the class, or a base of it, has the contract's base already."""
    machine = view.context.analysis.machine
    for owner in machine.mro(view.info):
        if owner.name == contract.base:
            return True
        for base in owner.node.bases:
            if machine.dotted_base(base, owner).rpartition(".")[2] == contract.base:
                return True
    return False


def join(view: ClassView, contract: Contract, text: Text) -> list[Edit]:
    """The edits that give the class its base and the module the import; none where it has them."""
    if takes_part(view, contract):
        return []
    return [
        Extend(text.span(view.node), (contract.base,), front=True),
        *imported(view, contract.module, contract.base, text),
    ]


def imported(view: ClassView, module: str, name: str, text: Text) -> list[Edit]:
    """The edit that imports a name, none where it is there."""
    unit = view.context.analysis.unit
    last: ast.stmt | None = None
    first: ast.stmt | None = None
    place: ast.ImportFrom | None = None
    for chunk in unit.module.chunks:
        for statement in unit.module.statements(chunk):
            first = first or statement
            if isinstance(statement, ast.ImportFrom) and statement.module == module and not statement.level:
                if any((a.asname or a.name) == name for a in statement.names):
                    return []
                place = statement
            if isinstance(statement, (ast.Import, ast.ImportFrom)) and statement.lineno < view.node.lineno:
                last = statement
    if place is not None and not any(a.name == "*" for a in place.names) and "#" not in text.source(place):
        return [Rewrite(text.span(place), _with_name(place, name, text))]
    line = f"from {module} import {name}"
    if last is not None:
        return [After(text.span(last), (line,))]
    return [Before(text.span(first or view.node), (line,))]


def _with_name(node: ast.ImportFrom, name: str, text: Text) -> tuple[str, ...]:
    """The import with one more name, in its place if the names are sorted; brackets and lines as they are."""
    items = [a.name if a.asname is None else f"{a.name} as {a.asname}" for a in node.names]
    names = [a.name for a in node.names]
    every = [*items, name]
    if names == sorted(names):
        place = next((n for n, other in enumerate(names) if other > name), len(names))
        every = [*items[:place], name, *items[place:]]
    old = text.source(node)
    head = old[: old.index("import") + len("import")]
    one = f"{head} {', '.join(every)}"
    if "(" not in old and len(one) <= 120:
        return (one,)
    return (f"{head} (", *(f"    {item}," for item in every), ")")
