"""CL205: a caller leaves out the live inputs that a child's backward accepts."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import loaded, names
from cachelint.collect.log import ChildCall
from cachelint.composite import Judged
from cachelint.model import FieldClass, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Calls ``child.backward(grad)`` where the child would take its inputs, and reads a field in their place."""
    analysis = context.analysis
    unit = analysis.unit
    if unit.trainer or unit.dialect.name not in ("graph-node", "layer"):
        return
    if not any(call.phase == "backward" and call.method == "backward" for call in analysis.log.child_calls):
        return
    seen: set[int] = set()
    for child in context.composites.children(analysis):
        judged = context.composites.judge(child)
        if judged is None or not judged.layer:
            continue
        for call in child.backward:
            if call.method != "backward" or id(call.node) in seen or call.file != unit.module.path:
                continue
            seen.add(id(call.node))
            missing = _left_out(call, judged)
            if missing:
                holder = f"`self.{child.attribute}`" if child.attribute else f"this {child.inst.info.name}"
                yield context.at(
                    rule,
                    call.node,
                    f"the backward of {holder} also takes {missing}; left out, it falls back on what the last forward kept. "
                    "Pass what its forward got",
                )


def _left_out(call: ChildCall, judged: Judged) -> str:
    """The live inputs that are not passed and whose place a field takes, or that backward can't do without."""
    if call.star or any("starred" in value.tags for value in call.values):
        return ""
    node = judged.unit.backward[0].node
    parameters = names(node)[2:]
    used = loaded(node)
    given = len(call.values) - 1
    fields = [f for f in judged.report.fields if f.read and f.cls is FieldClass.RECOMPUTE]
    if node.args.vararg is not None and not parameters:
        taken = names(judged.unit.forward[0].node)[1:] or judged.unit.forward[0].node.args.vararg
        falls_back = node.args.vararg.arg in used and bool(fields)
        return f"*{node.args.vararg.arg}" if given <= 0 and taken and falls_back else ""
    required = len(parameters) - len(node.args.defaults)
    missing = [
        name
        for position, name in enumerate(parameters)
        if position >= given and name not in call.keywords and (position < required or (name in used and fields))
    ]
    return ", ".join(f"`{name}`" for name in missing)
