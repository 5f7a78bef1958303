"""CL302: a large temporary stays owned past its last use, over a later allocation."""

from __future__ import annotations

from collections.abc import Iterator

from cachelint.checks import FileContext, Rule, safe
from cachelint.checks.lifetimes import owners
from cachelint.model import Finding


def check(context: FileContext, rule: Rule) -> Iterator[Finding]:
    """Groups of names that share storage and are used for the last time before a later allocation."""
    for kind in context.types:
        for group in owners(kind):
            if group.join is not None:
                continue
            names = ", ".join(f"`{name}`" for name in group.names)
            views = "" if len(group.names) == 1 else " (views of one storage)"
            line = group.later.statement.lineno
            message = (
                f"{names}{views} used for the last time on line {group.last.lineno} and still owned when line {line} "
                f"allocates ({group.later.what}): `del {', '.join(group.names)}` in between frees the memory"
            )
            fix = safe(f"del {', '.join(group.names)} after the last use")
            yield context.at(rule, group.first.statement, message, kind=kind.report.type, names=group.names, fix=fix)
