"""CL214: a tensor is saved for backward and read by nobody."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import Unpacking, complete, count, loaded, saves, unpackings
from cachelint.index.walk import code_of
from cachelint.infer.values import DEVICE, UNKNOWN
from cachelint.model import Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Positions of the save call that no unpacking uses. Only where all saves agree and every unpacking is plain."""
    analysis = context.analysis
    log, unit = analysis.log, analysis.unit
    if not log.saves or unit.dialect.name in ("graph-node", "layer", "chainer"):
        return
    calls = saves(log)
    if not calls or any(call.api != "save_for_backward" for call in log.saves) or not complete(analysis):
        return
    number = count(calls[0])
    if number is None or any(count(call) != number for call in calls):
        return
    if any(event.phase == "backward" for event in log.escapes):
        return
    uses = unpackings(log)
    if any(use.whole for use in uses) or (not uses and not _raises_only(context)):
        return
    names: dict[int, set[str]] = {}
    unused = [position for position in range(number) if not any(_used(use, position, number, names) for use in uses)]
    for position in unused:
        call = calls[0]
        expr = call.exprs[position]
        if call.file != unit.module.path or isinstance(expr, ast.Starred):
            continue
        if not any(c.values[position].kinds & (DEVICE | UNKNOWN) for c in calls):
            continue  # None, or a host value, which costs nothing: CL212 says that it doesn't belong there
        yield context.at(
            rule,
            expr,
            f"`{code_of(expr)}` is saved for backward, and nobody reads it: it is held from forward to backward for nothing",
        )


def _raises_only(context: TypeContext) -> bool:
    """Whether a backward without an unpacking is there to be judged: it returns something."""
    return any(event.phase == "backward" for event in context.analysis.log.returns)


def _used(use: Unpacking, position: int, number: int, names: dict[int, set[str]]) -> bool:
    if use.index is not None:
        return use.index % number == position if -number <= use.index < number else True
    assert use.targets is not None
    star = next((i for i, target in enumerate(use.targets) if isinstance(target, ast.Starred)), None)
    if star is None:
        if len(use.targets) != number:
            return True
        target = use.targets[position]
    elif position < star:
        target = use.targets[position]
    elif position >= number - (len(use.targets) - star - 1):
        target = use.targets[len(use.targets) - (number - position)]
    else:
        target = use.targets[star]
    if isinstance(target, ast.Starred):
        target = target.value
    return not isinstance(target, ast.Name) or _read(target, use, names)


def _read(target: ast.Name, use: Unpacking, names: dict[int, set[str]]) -> bool:
    """Whether a name is read in the function where it was bound."""
    scope = use.event.scope
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return True
    known = names.get(id(scope))
    if known is None:
        known = names[id(scope)] = loaded(scope)
    return target.id in known or not known.isdisjoint(("locals", "eval", "exec"))
