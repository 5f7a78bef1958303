"""torch.autograd.Function, registered operators and paddle's PyLayer: tensors on ctx move to save_for_backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cachelint.checks import FileContext, TypeContext
from cachelint.fix.edits import Outcome, Refusal, Text
from cachelint.fix.functions.family import Family
from cachelint.fix.functions.lent import reads_saved_only
from cachelint.fix.functions.scope import Routine, Scope, scope_of
from cachelint.model import Finding

CODES = frozenset(("CL101", "CL102", "CL103", "CL104", "CL105", "CL106", "CL107", "CL108", "CL109", "CL111"))
DIALECTS = frozenset(("torch-function", "torch-library", "paddle"))


def plan(file: FileContext, findings: Sequence[Finding]) -> Iterator[Outcome]:
    """Plans by family of types that share functions, refusals for what stays."""
    wanted: dict[int, dict[str, list[Finding]]] = {}
    contexts: list[TypeContext] = []
    for context in file.types:
        if context.report.dialect not in DIALECTS:
            continue
        own: dict[str, list[Finding]] = {}
        lines = {field.field: (field.line, field.column) for field in context.report.fields}
        for finding in findings:
            if (
                finding.type == context.report.type
                and finding.field
                and lines.get(finding.field) == (finding.line, finding.column)
            ):
                own.setdefault(finding.field, []).append(finding)
        if context.analysis.unit.receiver_is_self:
            for refused in own.values():
                for finding in refused:
                    yield Refusal(
                        finding,
                        "the old instance style keeps its state on self: static methods, ctx and `.apply` at every call "
                        "site have to come first",
                        "legacy style",
                    )
            continue
        contexts.append(context)
        wanted[id(context)] = own
    if not any(wanted.values()):
        return
    fields = frozenset(name for own in wanted.values() for name in own)
    for group in _families(contexts, fields):
        merged: dict[str, list[Finding]] = {}
        for scope in group:
            for name, found in wanted[id(scope.context)].items():
                merged.setdefault(name, []).extend(found)
        if merged:
            yield from Family(file, Text(file.module.text), group, merged).outcomes()


def _families(contexts: Sequence[TypeContext], fields: frozenset[str]) -> list[list[Scope]]:
    """The types of a file, those that share a function together: but for one that only reads what is saved."""
    known: dict[int, Routine] = {}
    groups: list[list[Scope]] = []

    def related(one: Scope, other: Scope) -> bool:
        shared = one.routines.keys() & other.routines.keys()
        return any(not reads_saved_only(one.routines[key], fields) for key in shared)

    for context in contexts:
        scope = scope_of(context, known)
        mine = [group for group in groups if any(related(scope, other) for other in group)]
        groups = [group for group in groups if group not in mine]
        groups.append([*(s for group in mine for s in group), scope])
    return groups
