"""CL209: a tensor is saved, registered or kept, and forward then changes it in place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import edited, exclusive, own_roots
from cachelint.collect.log import Launch, Mutation, Path, ReceiverLog
from cachelint.index.walk import code_of
from cachelint.infer.kernels import written_parameters
from cachelint.infer.values import DEVICE, Value
from cachelint.model import Finding


@dataclass(frozen=True, slots=True)
class _Kept:
    """What backward will read, and from when on."""

    text: str
    how: str
    value: Value
    node: ast.AST
    function: str
    order: int
    path: Path


@dataclass(frozen=True, slots=True)
class _Edit:
    """One in-place write."""

    how: str
    name: str
    value: Value
    node: ast.AST
    file: str
    function: str
    order: int
    path: Path


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Edits of forward that come after the value was kept, on the same storage and in the same run."""
    analysis = context.analysis
    log = analysis.log
    if not log.mutations and not log.launches:
        return
    yield from _in_backward(context, rule)
    kept = list(_kept(context, log))
    if not kept:
        return
    events: list[Mutation | Launch] = [*log.mutations, *log.launches]
    if not any(_follows(k, event) for k in kept for event in events):
        return
    wanted = frozenset().union(*(k.value.roots for k in kept))
    edits = sorted(_edits(log, wanted), key=lambda edit: edit.order)
    marked = frozenset().union(
        frozenset(), *(v.roots for name, _, values, _, _, _ in log.api_calls if name == "mark_dirty" for v in values)
    )
    reported: set[int] = set()
    for edit in edits:
        if id(edit.node) in reported or edit.file != analysis.unit.module.path:
            continue
        for keep in kept:
            roots = own_roots(keep.value)
            if edit.order < keep.order or not edit.value.roots & roots or roots & marked:
                continue
            if exclusive(keep, edit, log) or not _same(keep, edit) or _only_filled(keep, edits, analysis.machine.heap):
                continue
            if keep.how == "kept" and _through_field(keep.text, edit):
                continue  # the edit names the field: its new values are what backward is meant to get
            reported.add(id(edit.node))
            line = getattr(keep.node, "lineno", 0)
            yield context.at(
                rule,
                edit.node,
                f"`{keep.text}` was {keep.how} in line {line} and is changed in place here ({edit.how}): backward gets the changed "
                "values, and inside forward no check notices it",
            )
            break


def _in_backward(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Edits of backward on what it took out of ``saved_tensors``, where nothing notices or others hold the tensor too.

    An operator of PyTorch on an intermediate that only this node saved is an error in the second backward, no more.
    """
    log, unit = context.analysis.log, context.analysis.unit
    if unit.dialect.name not in ("torch-function", "torch-library"):
        return
    saved = {
        next(iter(value.roots))
        for save in log.saves
        for value in save.values
        if save.phase == "forward"
        and value.kinds & DEVICE
        and value.ref is None
        and len(own_roots(value)) == 1 == len(value.roots)
        and "copy?" not in value.tags
    }
    if not saved:
        return
    inputs = {f"p:{name}" for name in context.analysis.parameters}
    reported: set[str] = set()
    places: set[int] = set()
    for edit in sorted(_edits(log, frozenset(saved), "backward"), key=lambda edit: edit.order):
        value = edit.value
        if not value.roots.isdisjoint(reported) or edit.file != unit.module.path or value.ref is not None:
            continue
        if len(value.roots) != 1 or "copy?" in value.tags or "foreign" in value.tags:
            continue
        if not (own_roots(value) & inputs or edit.how.startswith("the kernel ") or "data" in value.tags):
            continue
        reported |= value.roots
        if id(edit.node) in places:
            continue
        places.add(id(edit.node))
        subject = "a tensor that forward saved"
        if re.fullmatch(r"[\w.]+(\[.*\])?", edit.name):
            subject = f"`{edit.name}` holds {subject}, and"
        yield context.at(
            rule,
            edit.node,
            f"{subject} is changed in place here ({edit.how}): a second backward, and whoever else holds it, gets the changed "
            "values. Work out of place, or clone first",
        )


def _follows(keep: _Kept, event: Mutation | Launch) -> bool:
    """Whether an event comes after a value was kept and touches it: then, and only then, kernels are worth a look."""
    if event.phase != "forward" or event.order < keep.order:
        return False
    if isinstance(event, Mutation):
        return bool(event.value.roots & keep.value.roots)
    return any(value.roots & keep.value.roots for _, value in event.values)


def _through_field(field: str, edit: _Edit) -> bool:
    """Whether an edit reaches the tensor by way of the field itself: ``self.f.mul_(2)``."""
    return re.search(rf"\.{re.escape(field)}\b", edit.name) is not None


def _kept(context: TypeContext, log: ReceiverLog) -> Iterator[_Kept]:
    for save in log.saves:
        if save.phase == "forward":
            for expr, value in zip(save.exprs, save.values, strict=False):
                if value.kinds & DEVICE and value.ref is None and own_roots(value):
                    target = expr.value if isinstance(expr, ast.Starred) else expr
                    how = "registered" if context.analysis.unit.receiver_is_self else "saved"
                    yield _Kept(code_of(target), how, value, save.node, save.function, save.order, save.path)
    read = {field.field for field in context.report.fields if field.read}
    for write in log.writes:
        value = write.value
        if write.phase == "forward" and write.field in read and value.kinds & DEVICE and value.ref is None:
            if own_roots(value) and not _written_again(write.field, write.order, log):
                yield _Kept(write.field, "kept", value, write.node, write.function, write.order, write.path)


def _written_again(field: str, order: int, log: ReceiverLog) -> bool:
    return any(w.field == field and w.order > order and w.phase == "forward" and not w.path for w in log.writes)


def _edits(log: ReceiverLog, wanted: frozenset[str], phase: str = "forward") -> Iterator[_Edit]:
    for mutation in log.mutations:
        if mutation.phase == phase and mutation.value.roots & wanted:
            yield _edit(mutation, mutation.value, mutation.how, edited(mutation.node))
    for launch in log.launches:
        if launch.phase != phase or not any(value.roots & wanted for _, value in launch.values):
            continue
        given = {name: value for name, value in launch.values if value.roots & wanted}
        written = written_parameters(launch.func, given)
        for name, value in given.items():
            if name in written:
                kernel = getattr(launch.func.node, "name", "?")
                yield _edit(launch, value, f"the kernel {kernel} writes to {name}", "")


def _edit(event: Mutation | Launch, value: Value, how: str, name: str) -> _Edit:
    return _Edit(how, name, value, event.node, event.file, event.function, event.order, event.path)


def _same(keep: _Kept, edit: _Edit) -> bool:
    """Whether both surely share memory: what may be a copy counts only under the same name."""
    if len(edit.value.roots) > 1 or len(keep.value.roots) > 1:
        return bool(edit.name) and edit.name == keep.text
    if "copy?" in keep.value.tags or "copy?" in edit.value.tags:
        return edit.name == keep.text and ("copy?" in keep.value.tags) is ("copy?" in edit.value.tags)
    return True


def _only_filled(keep: _Kept, edits: list[_Edit], heap: object) -> bool:
    """Whether the value is a fresh buffer that gets its first content only after it was kept."""
    told = keep.value.why.text if keep.value.why is not None else ""
    fresh = "buffer to be filled" in told or "constant tensor" in told
    return fresh and not any(e.order < keep.order and e.value.roots & keep.value.roots for e in edits)
