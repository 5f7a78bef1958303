"""CL109: a closure that is made in forward and kept for backward captures tensors."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext, of_field
from cachelint.collect.held import captured
from cachelint.infer.values import DEVICE
from cachelint.model import FieldReport, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Functions that are kept on the receiver, or installed as hooks, and hold tensors of this call."""

    def message(field: FieldReport) -> str:
        return (
            f"`{field.field}` is a function that holds tensors of forward ({field.reason}): no hook, no version check and no "
            "report sees them. Pass the tensors as arguments, and save them"
        )

    yield from of_field(context, rule, message)
    analysis = context.analysis
    seen: set[int] = set()
    for hook in analysis.log.hooks:
        if hook.phase != "forward" or hook.file != analysis.unit.module.path or hook.value is None:
            continue
        held = captured(hook.value)
        if held is not None and held.kinds & DEVICE and id(hook.node) not in seen:
            seen.add(id(hook.node))
            yield context.at(
                rule,
                hook.node,
                "this hook is a closure over tensors of forward: no hook, no version check and no report sees them. "
                "Let it hold the host values that it needs, or do its work in backward",
            )
