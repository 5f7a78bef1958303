"""CL217: saved_tensors is read more than once in one backward."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import entry_of, exclusive
from cachelint.collect.log import Read
from cachelint.index.walk import walk
from cachelint.model import Finding

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """A second read that follows a first one in the same run."""
    analysis = context.analysis
    log = analysis.log
    if len(log.unpacks) < 2 or analysis.unit.dialect.name in ("graph-node", "layer", "chainer"):
        return
    reads = [r for r in log.unpacks if r.phase == "backward" and r.file == analysis.unit.module.path]
    done: set[str] = set()
    for number, late in enumerate(reads):
        entry = entry_of(late, "backward", log)
        if entry in done or entry == "jvp":  # what save_for_forward keeps is not unpacked
            continue
        for early in reads[:number]:
            if entry_of(early, "backward", log) != entry or exclusive(early, late, log):
                continue
            if early.node is late.node and not _repeats(late, early):
                continue
            done.add(entry)
            where = f"line {early.node.lineno}" if early.node is not late.node else "an earlier turn of the loop"  # type: ignore[attr-defined]
            yield context.at(
                rule,
                late.node,
                f"saved tensors are unpacked again after {where}: hooks run twice, and checkpointing refuses it. "
                "Unpack once into names",
            )
            break


def _repeats(late: Read, early: Read) -> bool:
    """Whether one place in the source is read in a loop (and not merely looked at twice by us)."""
    if late.scope is None or late.scope is not early.scope:
        return False
    for loop in walk(late.scope):
        if isinstance(loop, _LOOPS):
            inside: list[ast.AST] = list(loop.body) if isinstance(loop, (ast.For, ast.AsyncFor, ast.While)) else []
            if isinstance(loop, ast.DictComp):
                inside = [loop.key, loop.value]
            elif isinstance(loop, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
                inside = [loop.elt]
            if any(node is late.node for part in inside for node in walk(part)):
                return True
    return False
