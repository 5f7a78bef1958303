"""CL301: tensors joined by cat or stack stay owned through a later large allocation."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.checks import FileContext, Rule, safe
from cachelint.checks.lifetimes import owners
from cachelint.model import Finding


def check(context: FileContext, rule: Rule) -> Iterator[Finding]:
    """Groups of names whose last use is the join."""
    for kind in context.types:
        for group in owners(kind):
            if group.join is None:
                continue
            names = ", ".join(f"`{name}`" for name in group.names)
            count = len(group.names)
            many = f"own {count} tensors, together as large as the concatenation, copied"
            kept = "owns a tensor that is copied" if count == 1 else many
            line = group.later.statement.lineno
            message = (
                f"{names} {kept} here and still alive when line {line} allocates ({group.later.what}): "
                f"`del {', '.join(group.names)}` after the join frees them before"
            )
            fix = safe(f"del {', '.join(group.names)} after the join")
            yield context.at(rule, group.join, message, kind=kind.report.type, names=group.names, fix=fix)
