"""CL203: a field that backward reads is unset, or left from an earlier call, on some path through forward."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import complete, facts
from cachelint.collect.log import Exit, Read, ReceiverLog, Write
from cachelint.infer.analysis import Analysis
from cachelint.model import FieldReport, Finding

_WORD = re.compile(r"[A-Za-z_]\w*")
_GRAD_MODE = ("grad", "inference", "exporting", "compiling", "scripting", "tracing")


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Fields that one return of forward leaves surely set and another does not, and that backward reads all the same."""
    analysis = context.analysis
    log, unit = analysis.log, analysis.unit
    if len(log.exits) + len(log.branches) < 2 or unit.trainer or not complete(analysis):
        return
    exits = _exits(analysis)
    instance = unit.dialect.name in ("layer", "graph-node")
    for field in context.report.fields:
        if not field.read or field.persistent:
            continue
        writes = [w for w in log.writes if w.field == field.field and w.phase == "forward"]
        functions = {w.function for w in writes}
        own = [e for e in exits if e.function in functions]
        if not writes or len(functions) != 1 or not own or any(field.field in w.guards for w in writes):
            continue
        missing = [e for e in own if field.field not in e.set]
        if not missing or len(missing) == len(own) and all(not w.path for w in writes):
            continue
        if not instance and field.field in log.initial or _excused(writes, missing, log, analysis, instance):
            continue
        read = _read(field, writes, log, analysis, instance)
        if read is not None:
            yield _finding(context, rule, field, writes, missing[0], read, instance)


def _finding(
    context: TypeContext, rule: Rule, field: FieldReport, writes: list[Write], exit_: Exit, read: Read, instance: bool
) -> Finding:
    line = getattr(exit_.node, "lineno", 0)
    line = exit_.node.lineno if isinstance(exit_.node, ast.Return) else line
    what = "still holds the value of an earlier call" if instance else "is not set"
    return context.at(
        rule,
        writes[0].node,
        f"`{field.field}` {what} when forward leaves by line {line}, and backward reads it (line {read.node.lineno}). "  # type: ignore[attr-defined]
        "Set or clear it on every path",
        field=field,
    )


def _exits(analysis: Analysis) -> list[Exit]:
    """The ends of the function that has the receiver: setup_context where there is one."""
    names = {m.node.name for m in analysis.unit.setup} or {m.node.name for m in analysis.unit.forward}
    path = analysis.unit.module.path
    return [e for e in analysis.log.exits if e.function in names and e.file == path]


def _excused(writes: list[Write], missing: list[Exit], log: ReceiverLog, analysis: Analysis, instance: bool) -> bool:
    """Whether the branch asks whether there will be a backward at all, or, for a layer, something that never changes."""
    tests = [log.branches[branch].test for w in writes for branch, _ in w.path if branch in log.branches]
    tests += [log.branches[branch].test for e in missing for branch, _ in e.path if branch in log.branches]
    if any(arm in ("body",) or arm.startswith(("except", "case")) for w in writes for _, arm in w.path):
        return True
    if any(word in ast.unparse(test) for test in tests for word in _GRAD_MODE):
        return True
    # A branch of a layer that asks its configuration goes the same way in every call.
    return instance and bool(tests) and all(_constant(test, analysis) for test in tests)


def _constant(test: ast.expr, analysis: Analysis) -> bool:
    """Whether a test reads only attributes that the constructor sets and forward does not."""
    written = {w.field for w in analysis.log.writes if w.phase == "forward"} | {"training"}
    for node in ast.walk(test):
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and node.id not in ("self", "len", "isinstance")
        ):
            if node.id.isupper():
                continue
            return False
        if isinstance(node, ast.Attribute) and node.attr in written:
            return False
    return True


def _read(field: FieldReport, writes: list[Write], log: ReceiverLog, analysis: Analysis, instance: bool) -> Read | None:
    """A read of backward that the missing path reaches: no test of backward tells the paths apart."""
    entries = {m.node.name for m in analysis.unit.backward}
    known = set().union(*(facts(w.path, log) for w in writes))
    words = {word for text, _ in known for word in _words(text)}
    guarded = _kept_words(log)
    for read in log.reads:
        if read.field != field.field or read.phase != "backward" or read.file != analysis.unit.module.path:
            continue
        if not read.sure or read.function not in entries or _asked(read, field.field):
            continue
        tests = facts(read.path, log)
        asked = {word for text, _ in tests for word in _words(text)}
        if instance:
            if asked & (words | guarded) - {field.field, "self"}:
                continue
            return read
        if not read.path and not _left_earlier(read, log):
            return read
    return None


def _left_earlier(read: Read, log: ReceiverLog) -> bool:
    """Whether backward may have returned before: then a test that is not on the read's path told the paths apart."""
    return any(how == read.function for (branch, _), how in log.ended.items() if branch in log.branches)


def _kept_words(log: ReceiverLog) -> set[str]:
    return {w.field for w in log.writes if w.phase == "forward" and w.value.kinds == 1 and "has" in w.field}


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text)) - {"None", "True", "False", "is", "not", "and", "or", "in", "Eq"}


def _asked(read: Read, field: str) -> bool:
    """Whether the function around a read tests for the attribute: hasattr, getattr with a default."""
    if read.scope is None:
        return True
    for node in ast.walk(read.scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr"):
            if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) and node.args[1].value == field:
                return True
    return False
