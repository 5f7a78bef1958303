"""CL211: saved_tensors is unpacked into a number of names that no save of forward has."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import Unpacking, complete, count, entry_of, saves, unpackings
from cachelint.model import Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Unpackings that fit none of the saves, where every count is known."""
    analysis = context.analysis
    log = analysis.log
    if not log.unpacks or (analysis.unit.receiver_is_self and analysis.unit.dialect.name != "torch-function"):
        return
    calls = saves(log)
    if not calls or not complete(analysis):
        return
    counts = {count(call) for call in calls}
    known = {number for number in counts if number is not None}
    if None in counts:
        return
    saved = " or ".join(str(number) for number in sorted(known))
    for use in unpackings(log):
        if use.event.file != analysis.unit.module.path or entry_of(use.event, "backward", log) == "jvp":
            continue
        told = _mismatch(use, known)
        if told:
            lines = ", ".join(str(call.node.lineno) for call in calls)
            yield context.at(rule, use.event.node, f"{told}, but forward saves {saved} (line {lines})")


def _mismatch(use: Unpacking, known: set[int]) -> str:
    if use.targets is not None:
        wanted = len(use.targets)
        if any(isinstance(target, ast.Starred) for target in use.targets):
            return f"at least {wanted - 1} tensors are unpacked" if wanted - 1 > max(known) else ""
        return f"{wanted} tensors are unpacked" if wanted not in known else ""
    if use.index is not None:
        needed = use.index + 1 if use.index >= 0 else -use.index
        return f"saved tensor {use.index} is read" if needed > max(known) else ""
    return ""
