"""CL210: a second save_for_backward on one path replaces the first."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import exclusive, saves
from cachelint.model import Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Save calls that one run of forward reaches one after the other. A layer's registrations add up instead."""
    log = context.analysis.log
    if len(log.saves) < 2 or context.analysis.unit.dialect.name in ("graph-node", "layer", "chainer"):
        return
    calls = sorted(saves(log), key=lambda save: save.order)
    for number, late in enumerate(calls):
        early = next((c for c in calls[:number] if not exclusive(c, late, log)), None)
        if early is not None and late.file == context.analysis.unit.module.path:
            yield context.at(
                rule,
                late.node,
                f"this call replaces what line {early.node.lineno} saved: only the last save_for_backward of a run counts. "
                "Save everything in one call",
            )
