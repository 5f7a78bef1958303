"""All fields of one function node, planned together."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cachelint.checks import TypeContext
from cachelint.fix.edits import After, Before, Edit, Extend, Outcome, Plan, Refusal, Replace, Rewrite, Text
from cachelint.fix.functions.fields import CannotPlan
from cachelint.fix.functions.scope import FORWARD as FORWARD_ROLE
from cachelint.fix.functions.scope import Routine
from cachelint.fix.functions.slices import NoSlice, Slice
from cachelint.fix.layers.view import ClassView, Use, is_none, outside_reader
from cachelint.fix.nodes.arrays import ArraySlicer, changed, code_of, names_in
from cachelint.fix.nodes.outputs import check_output, outputs
from cachelint.fix.nodes.sides import Side, Sides, hands_inputs_on, read_back, retained, sides_of
from cachelint.index.walk import walk
from cachelint.infer.values import carried
from cachelint.model import Applicability, Finding

_NO_CONTRACT = (
    "chainer retains inputs and outputs, and this is neither: make it an output of forward, or compute it again where "
    "that is cheap"
)


@dataclass(frozen=True)
class Derived:
    """A field that backward computes again: the write and its slice in one forward, which stands for all."""

    name: str
    side: Side
    value: ast.expr
    part: Slice
    """What the value needs; its tensors are places of inputs."""

    @property
    def places(self) -> list[int]:
        """The inputs that it needs."""
        return [int(place) for place in self.part.tensors]


@dataclass
class Retention:
    """What backward calls the inputs: by method of backward the code for each place, and the edits that make it so."""

    codes: dict[str, dict[int, str]] = field(default_factory=dict)
    after: dict[str, ast.stmt | None] = field(default_factory=dict)
    """By method the statement behind which the names are there; None for the top of the body."""
    first: dict[str, list[str]] = field(default_factory=dict)
    """By method the statements that read back."""
    edits: list[Edit] = field(default_factory=list)


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
        derived: list[Derived] = []
        given: list[str] = []
        for name, findings in self.findings.items():
            try:
                if all(f.code == "CL104" for f in findings):
                    self.check_uses(name, sides)
                    check_output(name, sides)
                    given.append(name)
                else:
                    derived.append(self.derived(name, sides, kept))
            except CannotPlan as error:
                yield from self.refused([name], error)
        if derived:
            try:
                yield self.plan(derived, sides, kept)
            except CannotPlan as error:
                yield from self.refused([item.name for item in derived], error)
        if given:
            yield self.retain_outputs(given, sides)

    def retain_outputs(self, names: Sequence[str], sides: Sides) -> Plan:
        """The plan for outputs."""
        edits = [*outputs(names, sides, self.text), *self.constructor(names)]
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

    def derived(self, name: str, sides: Sides, kept: tuple[int, ...] | None) -> Derived:
        """How backward has a field without the cache. Raises CannotPlan."""
        if any(f.code not in ("CL101", "CL102") for f in self.findings[name]):
            raise CannotPlan(_NO_CONTRACT, "no contract")
        self.check_uses(name, sides)
        found: list[tuple[Derived, str]] = []
        for side in sides.forwards:
            item = self.slice(name, side, sides)
            found.append((item, self.canonical(item)))
        if len({shape for _, shape in found}) != 1:
            raise CannotPlan("the forwards make it in different ways", "made in different ways")
        item = found[0][0]
        if sides.live and kept is not None and not set(item.places) <= set(kept):
            raise CannotPlan("backward is not given every input that it needs", "not retained")
        return item

    def check_uses(self, name: str, sides: Sides) -> None:
        """Raise CannotPlan where somebody else has to do with the field, or backward changes or tests it."""
        outside = outside_reader(self.view, name)
        if outside:
            raise CannotPlan(f"{outside} reads it from outside the class", "read from outside")
        forwards = {side.method.name for side in (*sides.forwards, *sides.native)}
        backwards = {side.method.name for side in sides.backwards}
        for use in self.view.of(name):
            line, method = use.node.lineno, use.method
            flow = method.flow
            above = flow.parents.get(use.node)
            if use.kind == "store" and method.name == "__init__" and use.plain and is_none(use.value):
                continue
            if method.name not in forwards | backwards:
                raise CannotPlan(f"`{method.name}` uses it, too (line {line})", "used elsewhere")
            if flow.nested(use.node):
                raise CannotPlan(f"a nested function uses it (line {line})", "nested write")
            in_place = isinstance(above, ast.Attribute) and above.attr.endswith("_") and not above.attr.startswith("_")
            written = (
                isinstance(above, ast.Subscript) and above.value is use.node and not isinstance(above.ctx, ast.Load)
            )
            augmented = isinstance(use.statement, ast.AugAssign) and use.node in walk(use.statement.target)
            if use.kind in ("change", "delete") or in_place or written or augmented:
                raise CannotPlan(f"it is changed in place (line {line})", "changed in place")
            if method.name in backwards and use.kind != "load":
                raise CannotPlan(f"backward sets it (line {line})", "set in backward")
            if method.name in backwards and _is_test(above):
                raise CannotPlan(f"backward tests it (line {line})", "tested for")
        for mutation in self.context.analysis.log.mutations:
            for write in self.context.analysis.log.writes:
                if write.field == name and carried(write.value).roots & mutation.value.roots:
                    raise CannotPlan(
                        "the array, or one that shares its memory, is changed in place", "changed in place"
                    )

    def slice(self, name: str, side: Side, sides: Sides) -> Derived:
        """The slice that makes a field in one forward. Raises CannotPlan."""
        stores = [use for use in self.view.of(name, "store") if use.method is side.method]
        flow = side.method.flow
        if len(stores) != 1:
            raise CannotPlan(f"`{side.method.name}` does not set it once", "set on some paths")
        use = stores[0]
        top = flow.top(use.node)
        if not flow.is_top(use.statement) or side.returns_before(top) or hands_inputs_on(side):
            raise CannotPlan(f"`{side.method.name}` sets it on some paths only", "set on some paths")
        place = self.unpacked_place(use, side)
        if place is not None:
            assert isinstance(use.node, ast.expr)
            return Derived(name, side, use.node, Slice(value=use.node, tensors=[str(place)]))
        if use.value is None:
            raise CannotPlan(f"it is set inside another statement (line {use.node.lineno})", "indirect write")
        try:
            part = self.slicer(side, sides).slice(use.value, use.statement, len(side.method.node.body))
        except NoSlice as error:
            raise CannotPlan(str(error), "no slice") from error
        if not part.tensors:
            raise CannotPlan("it does not come from the inputs", "no slice")
        return Derived(name, side, use.value, part)

    def unpacked_place(self, use: Use, side: Side) -> int | None:
        """The place of the input that the unpacking gives to the field itself: ``self.x, t = inputs``."""
        if side.unpacking is None or use.statement is not side.unpacking:
            return None
        target = side.unpacking.targets[0]
        assert isinstance(target, (ast.Tuple, ast.List))
        return target.elts.index(use.node) if use.node in target.elts else None

    def slicer(self, side: Side, sides: Sides) -> ArraySlicer:
        """The slicer of a forward, for every backward."""
        unit, project = self.context.analysis.unit, self.context.project
        routine = Routine(side.method.node, side.method.receiver, FORWARD_ROLE, True, unit.module.path, self.view.info)
        dotted: dict[str, str] = {}
        for name in side.method.flow.used:
            found = project.resolve(unit.module, name)
            if found is None:
                continue
            if found.module is None:
                dotted[name] = found.dotted
            elif found.binding is None:
                dotted[name] = project.dotted(found.module.path)
            elif isinstance(found.binding, ast.FunctionDef):
                dotted[name] = f"{project.dotted(found.module.path)}.{name}"
        taken: set[str] = set()
        for other in sides.backwards:
            taken |= other.method.flow.parameters | set(other.method.flow.bindings)
        fields = {name: None for name in self.view.fields if self.fixed(name)} | self.class_constants()
        slicer = ArraySlicer(routine, {}, frozenset(), frozenset(), frozenset(taken), dotted, fields, side=side)
        slicer.mutated = changed(slicer, self.context.analysis.log.mutations)
        return slicer

    def fixed(self, name: str) -> bool:
        """Whether a field is what the constructor made it: forward and backward read the same."""
        stores = self.view.of(name, "store", "change", "delete")
        if not stores or any(use.method.name != "__init__" for use in stores):
            return False
        for use in self.view.of(name, "load"):
            above = use.method.flow.parents.get(use.node)
            if isinstance(above, ast.Attribute) and above.attr.endswith("_") and not above.attr.startswith("_"):
                return False
        return True

    def class_constants(self) -> dict[str, None]:
        """Literals in the body of the class that no method sets anew."""
        found: dict[str, None] = {}
        for statement in self.view.node.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, (ast.Constant, ast.UnaryOp)):
                for target in statement.targets:
                    if isinstance(target, ast.Name) and not self.view.of(target.id, "store", "change", "delete"):
                        found[target.id] = None
        return found

    def canonical(self, item: Derived) -> str:
        """The slice with places for names, to compare those of several forwards."""
        inputs = {place: f"<{place}>" for place in item.places}
        lines = [
            f"{self.text.source(step.target)} = {code_of(step.value, item.side, self.text, inputs, {}, {})}"
            for step in item.part.steps
        ]
        return "\n".join([*lines, code_of(item.value, item.side, self.text, inputs, {}, {item.name: "<0>"})])

    # -- the plan --------------------------------------------------------------------------------------------------------

    def plan(self, derived: Sequence[Derived], sides: Sides, kept: tuple[int, ...] | None) -> Plan:
        """The edits for some fields. Raises CannotPlan."""
        text = self.text
        derived = sorted(derived, key=lambda item: (item.value.lineno, item.value.col_offset))
        places = sorted({place for item in derived for place in item.places})
        gained = self.gained(places, sides, kept)
        edits = list(gained.edits)
        for side in (*sides.forwards, *sides.native):
            edits += self.in_forward(side, derived, side in sides.forwards)
        for side in sides.backwards:
            edits += self.in_backward(side, derived, gained)
        edits += self.constructor([item.name for item in derived])
        names = [f"`{item.name}`" for item in derived]
        return Plan(
            tuple(f for item in derived for f in self.findings[item.name]),
            tuple(edits),
            Applicability.SAFE,
            f"compute {', '.join(names)} again in backward from the inputs",
            (text.span(self.view.node),),
        )

    def gained(self, places: Sequence[int], sides: Sides, kept: tuple[int, ...] | None) -> Retention:
        """What backward has to do to have these inputs. Raises CannotPlan."""
        out = Retention()
        if sides.live:
            for side in sides.backwards:
                names = {place: name for name, place in side.positions.items()}
                out.codes[side.method.name] = {n: names.get(n, f"{side.inputs}[{n}]") for n in places}
                used = any(n in names for n in places)
                out.after[side.method.name] = side.unpacking if used else None
            return out
        missing = [place for place in places if place not in (kept or ())]
        for side in sides.forwards if missing else ():
            out.edits.append(self.retain(side, missing, kept))
        order = [*(kept or ()), *missing]
        for side in sides.backwards:
            out.codes[side.method.name] = self.read(side, places, order, missing, out)
        return out

    def retain(self, side: Side, missing: Sequence[int], kept: tuple[int, ...] | None) -> Edit:
        """The edit by which a forward retains more inputs."""
        if kept is not None:
            (call,) = side.calls("retain_inputs")
            return Replace(self.text.span(call.args[0]), f"({', '.join(map(str, (*kept, *missing)))})")
        own = ", ".join(map(str, missing))
        line = f"{side.method.receiver}.retain_inputs(({own}{',' if len(missing) == 1 else ''}))"
        body = side.method.node.body
        if side.unpacking is not None:
            return After(self.text.span(side.unpacking), (line,))
        return Before(self.text.span(body[side.method.flow.first]), (line,))

    def read(
        self, side: Side, places: Sequence[int], order: Sequence[int], missing: Sequence[int], out: Retention
    ) -> dict[int, str]:
        """The code for each input in a backward that reads back what was retained. Raises CannotPlan."""
        flow, name = side.method.flow, side.method.name
        statement = read_back(side, "get_retained_inputs")
        taken: set[str] = set()
        codes: dict[int, str] = {}
        forward = self.forward_names()

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
            out.edits.append(Extend(self.text.span(target), tuple(new)))
        out.after[name] = statement
        return {place: f"{codes[place]}.array" for place in places}

    def forward_names(self) -> dict[int, str]:
        """What the first forward that unpacks its inputs calls them."""
        unit = self.context.analysis.unit
        for method in self.view.methods.values():
            if any(method.node is m.node for m in unit.forward) and method.positional:
                positions = Side(method, method.positional[0]).positions
                if positions:
                    return {place: name for name, place in positions.items()}
        return {}

    def in_forward(self, side: Side, derived: Sequence[Derived], pure: bool) -> list[Edit]:
        """Fields become locals of a forward, or go where it has no other use for them and making them does nothing else."""
        text, flow = self.text, side.method.flow
        edits: list[Edit] = []
        taken: set[str] = set()
        for item in derived:
            uses = [use for use in self.view.of(item.name) if use.method is side.method]
            loads = [use for use in uses if use.kind == "load"]
            for use in uses:
                if use.kind == "store" and not loads and use.plain and pure:
                    edits.append(Rewrite(text.span(use.statement)))
                    uses = [other for other in uses if other is not use]
            if not uses:
                continue
            local = flow.fresh(item.name.lstrip("_") or item.name, taken)
            taken.add(local)
            edits += [Replace(text.span(use.node), local) for use in uses]
        return edits

    def in_backward(self, side: Side, derived: Sequence[Derived], gained: Retention) -> list[Edit]:
        """The slices in front of the reads, which become reads of locals. Raises CannotPlan."""
        text, flow, name = self.text, side.method.flow, side.method.name
        inputs = gained.codes[name]
        lines = list(gained.first.get(name, ()))
        edits: list[Edit] = []
        taken: set[str] = set(_locals(lines))
        known: dict[str, str] = {}
        steps: dict[int, str] = {}
        reads = {item.name: [u for u in self.view.of(item.name, "load") if u.method is side.method] for item in derived}
        wanted = [item for item in derived if reads[item.name]]
        if not wanted:
            return []
        names: dict[str, str] = {}
        for item in wanted:
            for step in item.part.steps:
                if id(step.value) in steps:
                    continue
                code = code_of(step.value, item.side, text, inputs, names, known)
                for own in sorted(names_in(step.target)):
                    names[own] = flow.fresh(own, taken)
                    taken.add(names[own])
                steps[id(step.value)] = code
                lines.append(f"{code_of(step.target, item.side, text, {}, names, {})} = {code}")
            if _is_target(item.value) or item.side.place(item.value) is not None:
                known[item.name] = inputs[item.places[0]]
            else:
                local = flow.fresh(item.name.lstrip("_") or item.name, taken)
                taken.add(local)
                lines.append(f"{local} = {code_of(item.value, item.side, text, inputs, names, known)}")
                known[item.name] = local
            edits += [Replace(text.span(use.node), known[item.name]) for use in reads[item.name]]
        after = gained.after.get(name)
        place = flow.top(after) if after is not None else -1
        if any(flow.top(use.node) <= place for item in wanted for use in reads[item.name]):
            raise CannotPlan(f"`{name}` reads it before it unpacks its inputs", "read before the inputs")
        inputs_used = {code.partition(".")[0].partition("[")[0] for code in inputs.values()}
        if any(known[i.name] in inputs.values() for i in wanted):
            if any(len(flow.bindings.get(n, ())) > (n not in flow.parameters) for n in inputs_used):
                raise CannotPlan(f"`{name}` binds an input to something else", "input bound again")
        if lines:
            where = text.span(after if after is not None else side.method.node.body[flow.first])
            edits.append(After(where, tuple(lines)) if after is not None else Before(where, tuple(lines)))
        return edits

    def constructor(self, names: Sequence[str]) -> list[Edit]:
        """Drop the Nones that the constructor gives to fields that go."""
        uses = [u for n in names for u in self.view.of(n, "store") if u.method.name == "__init__"]
        return [Rewrite(self.text.span(use.statement)) for use in uses]


def _is_target(node: ast.expr) -> bool:
    """Whether a derived value is the very target to which forward unpacks an input."""
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)


def _is_test(node: ast.AST | None) -> bool:
    """Whether an expression is asked for None or for its truth there."""
    if isinstance(node, ast.Compare):
        return any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)
    return isinstance(node, (ast.BoolOp, ast.If, ast.IfExp)) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )


def _locals(lines: Sequence[str]) -> set[str]:
    return {n.id for line in lines for n in walk(ast.parse(line)) if isinstance(n, ast.Name)}
