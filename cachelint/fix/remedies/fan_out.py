"""A composite hands its saver to the children that no builder reaches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cachelint.checks import FileContext, TypeContext
from cachelint.composite import Child
from cachelint.fix.edits import After, Edit, Outcome, Plan, Refusal, Text
from cachelint.fix.functions.fields import CannotPlan
from cachelint.fix.layers.contract import contract_of, join
from cachelint.fix.layers.view import FORWARD, ClassView, is_none
from cachelint.model import Applicability, Finding

CODES = frozenset(("CL204",))


def plan(file: FileContext, findings: Sequence[Finding]) -> Iterator[Outcome]:
    """A plan a child: where it is made in forward, right there; else in ``set_saver``, all of them together."""
    text = Text(file.module.text)
    for context in file.types:
        by_place = {(f.line, f.column): f for f in findings if f.type == context.report.type}
        if not by_place or context.analysis.unit.info is None:
            continue
        early: list[tuple[Finding, Child]] = []
        for child in context.composites.children(context.analysis):
            node = child.forward[0].node
            finding = by_place.get((node.lineno, node.col_offset + 1))
            if finding is None:
                continue
            if child.made_in_forward:
                try:
                    yield _late(context, text, finding, child)
                except CannotPlan as error:
                    yield Refusal(finding, error.reason, error.kind)
            else:
                early.append((finding, child))
        if early:
            yield from _set_saver(context, text, early)


def _late(context: TypeContext, text: Text, finding: Finding, child: Child) -> Plan:
    view = ClassView(context, text)
    if not child.attribute or not child.single:
        raise CannotPlan("the child is not held in a field of its own", "no field")
    edits: list[Edit] = []
    for use in view.of(child.attribute, "store"):
        if FORWARD in use.method.roles and not is_none(use.value):
            if not use.plain:
                raise CannotPlan(f"it is set inside another statement (line {use.node.lineno})", "indirect write")
            receiver = use.method.receiver
            line = f"{receiver}.{child.attribute}.set_saver({receiver}.saver)"
            edits.append(After(text.span(use.statement), (line,)))
    if not edits:
        raise CannotPlan("where the child is made was not found", "indirect write")
    contract = contract_of(view)
    edits += join(view, contract, text)
    return Plan(
        (finding,),
        tuple(edits),
        Applicability.UNSAFE if contract.doubt else Applicability.SAFE,
        f"hand the saver to `{child.attribute}` where it is made",
        (text.span(view.node),),
        notes=(contract.doubt,) if contract.doubt else (),
    )


def _set_saver(context: TypeContext, text: Text, children: Sequence[tuple[Finding, Child]]) -> Iterator[Outcome]:
    view = ClassView(context, text)
    contract = contract_of(view)
    lines = [
        "",
        "def set_saver(self, saver):",
        '    """Bind this layer and its children to a saver."""',
        "    super().set_saver(saver)",
    ]
    findings: list[Finding] = []
    for finding, child in children:
        if not child.attribute or view.backward is None:
            yield Refusal(finding, "the child is not held in a field of its own", "no field")
            continue
        findings.append(finding)
        own = f"self.{child.attribute}"
        if not child.single:
            lines += [f"    for child in {own}:", "        child.set_saver(saver)"]
        elif any(is_none(use.value) for use in view.of(child.attribute, "store")):
            lines += [f"    if {own} is not None:", f"        {own}.set_saver(saver)"]
        else:
            lines.append(f"    {own}.set_saver(saver)")
    if not findings or view.backward is None:
        return
    edits: list[Edit] = [After(text.span(view.backward.node), tuple(lines)), *join(view, contract, text)]
    yield Plan(
        tuple(findings),
        tuple(edits),
        Applicability.UNSAFE if contract.doubt else Applicability.SAFE,
        "fan the saver out to the children",
        (text.span(view.node),),
        notes=(contract.doubt,) if contract.doubt else (),
    )
