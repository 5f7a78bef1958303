"""CL204: a composite does not hand its saver to a child that saves."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.composite import Child, Judged
from cachelint.model import Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Children that register tensors, and that neither the builder nor the composite gives a saver."""
    analysis = context.analysis
    unit = analysis.unit
    if unit.trainer or unit.dialect.name not in ("graph-node", "layer") or not analysis.log.child_calls:
        return
    wired = context.settings.contract.wires_children
    if unit.info is None or _hands_on(context):
        return
    for child in context.composites.children(analysis):
        if wired and not child.made_in_forward:
            continue
        judged = context.composites.judge(child)
        call = child.forward[0]
        if judged is None or not _registers(judged) or call.file != unit.module.path:
            continue
        yield context.at(rule, call.node, _message(child))


def _message(child: Child) -> str:
    holder = f"`self.{child.attribute}`" if child.attribute else f"this {child.inst.info.name}"
    why = "is made after the savers were handed out" if child.made_in_forward else "gets no saver from the contract"
    return f"{holder} registers tensors, but {why}: without one its registrations do nothing. Call set_saver(self.saver) on it"


def _registers(judged: Judged) -> bool:
    return any(save.phase == "forward" for save in judged.analysis.log.saves)


def _hands_on(context: TypeContext) -> bool:
    """Whether some method of the class hands a saver on."""
    info = context.analysis.unit.info
    assert info is not None
    for owner in context.analysis.machine.mro(info):
        for chunk in owner.module.chunks:
            if owner.name in chunk.text and ".set_saver(" in chunk.text and _inside(chunk.text, owner.name):
                return True
    return False


def _inside(text: str, name: str) -> bool:
    return f"class {name}" in text
