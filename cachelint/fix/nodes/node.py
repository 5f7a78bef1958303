"""All fields of one function node, planned together."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cachelint.checks import TypeContext
from cachelint.fix.edits import Outcome, Plan, Refusal, Text
from cachelint.fix.functions.fields import CannotPlan
from cachelint.fix.layers.view import ClassView, Use, is_none, outside_reader
from cachelint.fix.nodes.backwards import Backward, changes
from cachelint.fix.nodes.derived import FLAGGED, WHERE_READ, Derived, Deriver
from cachelint.fix.nodes.forwards import constructor, flags, in_forward
from cachelint.fix.nodes.outputs import check_output, outputs
from cachelint.fix.nodes.replay import WHOLE
from cachelint.fix.nodes.retention import gained
from cachelint.fix.nodes.sides import Sides, retained, sides_of
from cachelint.index.walk import walk
from cachelint.infer.values import carried
from cachelint.model import Applicability, Finding

_NO_CONTRACT = (
    "chainer retains inputs and outputs, and this is neither: make it an output of forward, or compute it again where "
    "that is cheap"
)
_CHEAP = frozenset(("CL101", "CL102", "CL104", "CL106"))
"""The rules whose fields may come from inputs by cheap steps."""


class Node:
    """One class."""

    def __init__(self, context: TypeContext, text: Text, findings: Mapping[str, list[Finding]]) -> None:
        self.context = context
        self.text = text
        self.findings = findings
        self.view = ClassView(context, text)

    def outcomes(self) -> Iterator[Outcome]:
        """A plan for the fields that can be mended, a refusal for every other finding."""
        try:
            sides = sides_of(self.view)
            kept = retained(sides)
        except CannotPlan as error:
            yield from self.refused(self.findings, error)
            return
        deriver = Deriver(self.context, self.text, self.view, sides, kept)
        derived: list[Derived] = []
        given: list[str] = []
        for name, findings in self.findings.items():
            try:
                if all(f.code == "CL104" for f in findings):
                    refusal = self.no_output(name, sides)
                    if refusal is None:
                        given.append(name)
                        continue
                    try:
                        derived.append(self.derived(name, sides, deriver))
                    except CannotPlan:
                        raise refusal from None
                else:
                    derived.append(self.derived(name, sides, deriver))
            except CannotPlan as error:
                yield from self.refused([name], error)
        derived, lost = self.standing(derived)
        lacking = CannotPlan("it needs what the constructor was given, and forward overwrites that", "no slice")
        yield from self.refused(lost, lacking)
        if derived:
            yield from self.planned(derived, sides, kept, deriver)
        if given:
            yield self.retain_outputs(given, sides, deriver)

    def no_output(self, name: str, sides: Sides) -> CannotPlan | None:
        """Why a field is not an output that can be retained."""
        try:
            self.check_uses(name, sides)
            check_output(name, sides)
        except CannotPlan as error:
            return error
        return None

    def standing(self, derived: Sequence[Derived]) -> tuple[list[Derived], list[str]]:
        """The fields whose plans hold together: what needs the constructor's value of a field needs that field's plan."""
        kept, lost = list(derived), list[str]()
        while True:
            names = {item.name for item in kept}
            bad = [item for item in kept if not item.given <= names]
            if not bad:
                return kept, lost
            lost += [item.name for item in bad]
            kept = [item for item in kept if item not in bad]

    def planned(
        self, derived: Sequence[Derived], sides: Sides, kept: tuple[int, ...] | None, deriver: Deriver
    ) -> Iterator[Outcome]:
        """One plan for all of these fields, or one for each that can be planned alone."""
        try:
            yield self.plan(derived, sides, kept, deriver)
        except CannotPlan as error:
            if len(derived) == 1:
                yield from self.refused([item.name for item in derived], error)
                return
            rest: list[Derived] = []
            for item in derived:
                try:
                    self.plan([item], sides, kept, deriver)
                    rest.append(item)
                except CannotPlan as own:
                    yield from self.refused([item.name], own)
            if rest and len(rest) < len(derived):
                rest, lost = self.standing(rest)
                yield from self.refused(lost, error)
                yield from self.planned(rest, sides, kept, deriver) if rest else ()
            else:
                yield from self.refused([item.name for item in rest], error)

    def retain_outputs(self, names: Sequence[str], sides: Sides, deriver: Deriver) -> Plan:
        """The plan for outputs."""
        edits = [*outputs(names, sides, self.text), *constructor([], names, {}, deriver)]
        listed = ", ".join(f"`{name}`" for name in names)
        return Plan(
            tuple(f for name in names for f in self.findings[name]),
            tuple(edits),
            Applicability.SAFE,
            f"retain the output instead of {listed}",
            (self.text.span(self.view.node),),
        )

    def refused(self, names: Iterable[str], error: CannotPlan) -> Iterator[Refusal]:
        """A refusal for each finding of some fields."""
        for name in names:
            yield from (Refusal(finding, error.reason, error.kind) for finding in self.findings[name])

    # -- one field -------------------------------------------------------------------------------------------------------

    def derived(self, name: str, sides: Sides, deriver: Deriver) -> Derived:
        """How backward has a field without the cache. Raises CannotPlan."""
        if any(f.code not in _CHEAP for f in self.findings[name]):
            raise CannotPlan(_NO_CONTRACT, "no contract")
        self.check_uses(name, sides, deriver)
        try:
            found = deriver.derived(name)
        except CannotPlan as error:
            if any(f.code == "CL106" for f in self.findings[name]):
                raise CannotPlan(_NO_CONTRACT, "no contract") from error
            raise
        self.check_changes(found, sides, deriver)
        return found

    def check_uses(self, name: str, sides: Sides, deriver: Deriver | None = None) -> None:
        """Raise CannotPlan where somebody else has to do with the field, or it is changed in ways that can't be followed.
        Without a deriver the field stays one array, and nobody may change it."""
        outside = outside_reader(self.view, name)
        if outside:
            raise CannotPlan(f"{outside} reads it from outside the class", "read from outside")
        forwards = {side.method.name for side in (*sides.forwards, *sides.native)}
        backwards = {side.method.name for side in sides.backwards}
        for use in self.view.of(name):
            line, method = use.node.lineno, use.method
            flow = method.flow
            if use.kind == "store" and method.name == "__init__" and use.plain:
                if is_none(use.value) or deriver is not None:
                    continue
            if method.name not in forwards | backwards:
                raise CannotPlan(f"`{method.name}` uses it, too (line {line})", "used elsewhere")
            if flow.nested(use.node):
                raise CannotPlan(f"a nested function uses it (line {line})", "nested write")
            if use.kind == "delete" or (deriver is None and changes(use)) or _by_method(use):
                raise CannotPlan(f"it is changed in place (line {line})", "changed in place")
            if method.name in backwards and use.kind == "store" and deriver is None:
                raise CannotPlan(f"backward sets it (line {line})", "set in backward")

    def check_changes(self, item: Derived, sides: Sides, deriver: Deriver) -> None:
        """Raise CannotPlan where the array of a field is changed by statements that are not carried out again, or where
        backward changes, sets or tests it and a local would not do."""
        name = item.name
        backwards = {side.method.name for side in sides.backwards}
        replayed = {
            id(node) for made in item.every for leaf in made.replay.leaves.values() for node in walk(leaf.statement)
        }
        again = {id(use.node) for use in self.view.of(name) if use.method.name in backwards and changes(use)}
        own = item.when != WHERE_READ and all(made.own for made in item.made.values()) and not deriver.sharing(name)
        for use in self.view.of(name):
            line = use.node.lineno
            if use.method.name in backwards:
                if changes(use) and not own:
                    raise CannotPlan(f"it is changed in place (line {line})", "changed in place")
                if use.kind == "store" and (item.when == WHERE_READ or not own):
                    raise CannotPlan(f"backward sets it (line {line})", "set in backward")
                plain = item.when != FLAGGED and not any(name in m.replay.defaults for m in item.made.values())
                if plain and _is_test(use.method.flow.parents.get(use.node)):
                    raise CannotPlan(f"backward tests it (line {line})", "tested for")
            elif changes(use) and id(use.statement) not in replayed:
                raise CannotPlan(f"it is changed in place (line {line})", "changed in place")
        read = {
            key.removeprefix("self.") for made in item.every for key in made.replay.reads if key.startswith("self.")
        }
        writes = [write for write in self.context.analysis.log.writes if write.field in read | {name}]
        for mutation in deriver.mutations:
            if id(mutation.node) in replayed or (own and any(id(n) in again for n in walk(mutation.node))):
                continue
            if any(carried(write.value).roots & mutation.value.roots for write in writes):
                raise CannotPlan("the array, or one that shares its memory, is changed in place", "changed in place")

    # -- the plan --------------------------------------------------------------------------------------------------------

    def plan(self, derived: Sequence[Derived], sides: Sides, kept: tuple[int, ...] | None, deriver: Deriver) -> Plan:
        """The edits for some fields. Raises CannotPlan."""
        text = self.text
        derived = sorted(derived, key=lambda item: (item.first.last.lineno, item.name))
        places = sorted({place for item in derived for place in item.places})
        if any(WHOLE in made.replay.places for item in derived for made in item.made.values()):
            places = [*places, WHOLE]
        gains = gained(places, sides, kept, self.context, text)
        flagged = flags(derived, self.view)
        edits = list(gains.edits)
        for side in (*sides.forwards, *sides.native):
            edits += in_forward(side, derived, side in sides.forwards, flagged, deriver)
        for side in sides.backwards:
            edits += Backward(side, self.view, text, gains, flagged).edits(derived)
        edits += constructor(derived, [item.name for item in derived], flagged, deriver)
        names = [f"`{item.name}`" for item in derived]
        return Plan(
            tuple(f for item in derived for f in self.findings[item.name]),
            tuple(edits),
            Applicability.SAFE,
            f"compute {', '.join(names)} again in backward from the inputs",
            (text.span(self.view.node),),
        )


def _by_method(use: Use) -> bool:
    """Whether a use calls a method that changes the array or a container."""
    above = use.method.flow.parents.get(use.node)
    in_place = isinstance(above, ast.Attribute) and above.attr.endswith("_") and not above.attr.startswith("_")
    return in_place or (use.kind == "change" and isinstance(above, ast.Attribute))


def _is_test(node: ast.AST | None) -> bool:
    """Whether an expression is asked for None or for its truth there."""
    if isinstance(node, ast.Compare):
        return any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)
    return isinstance(node, (ast.BoolOp, ast.If, ast.IfExp)) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )
