"""CL203: a field that backward reads is unset, or left from an earlier call, on some path through forward."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cachelint.checks import Rule, TypeContext
from cachelint.checks.never_set import never_set
from cachelint.checks.support import complete, facts, statements
from cachelint.collect.log import Exit, Path, Read, ReceiverLog, Write
from cachelint.index.walk import code_of, walk
from cachelint.infer.analysis import Analysis
from cachelint.model import FieldReport, Finding

_WORD = re.compile(r"[A-Za-z_]\w*")
_NO_NAMES = frozenset(("None", "True", "False", "is", "not", "and", "or", "in", "Eq"))
_GRAD_MODE = re.compile(r"grad|backprop|inference|export|compiling|scripting|tracing")
"""What a branch asks that wants to know whether a backward will come at all."""


@dataclass(frozen=True, slots=True)
class _Gap:
    """A field that one way out of forward leaves unset, and the read that minds."""

    field: FieldReport
    write: Write
    exit: Exit
    read: Read


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Fields that one return of forward leaves surely set and another does not. One finding for each way out."""
    analysis = context.analysis
    log, unit = analysis.log, analysis.unit
    for read in never_set(context):
        yield context.at(
            rule,
            read.node,
            f"`{read.field}` is read here, and neither forward nor any other code sets it: an AttributeError in backward",
        )
    if not log.branches or unit.trainer or not complete(analysis):
        return
    instance = unit.dialect.name in ("layer", "graph-node")
    gaps: dict[int, list[_Gap]] = {}
    exits = _exits(analysis)
    for field in context.report.fields:
        if field.read and not field.persistent:
            gap = _gap(field, exits, analysis, instance)
            if gap is not None:
                gaps.setdefault(id(gap.exit.node), []).append(gap)
    for found in gaps.values():
        names = ", ".join(f"`{gap.field.field}`" for gap in found[:3])
        names += f" and {len(found) - 3} more" if len(found) > 3 else ""
        verb, them = ("is", "it") if len(found) == 1 else ("are", "them")
        first = found[0]
        if instance:
            what = f"{names} still {'holds' if len(found) == 1 else 'hold'} the value of an earlier call"
        else:
            what = f"{names} {verb} not set"
        node = first.exit.node
        line = node.lineno if isinstance(node, ast.Return) else getattr(node, "end_lineno", 0)
        where = getattr(first.read.node, "lineno", 0)
        yield context.at(
            rule,
            first.write.node,
            f"{what} when forward leaves by line {line}, and backward reads {them} (line {where}). "
            f"Set or clear {them} on every path",
            field=first.field,
        )


def _gap(field: FieldReport, exits: list[Exit], analysis: Analysis, instance: bool) -> _Gap | None:
    log = analysis.log
    writes = [w for w in log.writes if w.field == field.field and w.phase == "forward"]
    functions = {w.function for w in writes}
    own = [e for e in exits if e.function in functions]
    if len(functions) != 1 or not own or any(w.grown or field.field in w.guards for w in writes):
        return None
    missing = [e for e in own if field.field not in e.set]
    if not missing or (len(missing) == len(own) and not any(w.path for w in writes)):
        return None
    if not instance and (_has_default(field.field, analysis) or _found_there(writes, log)):
        return None
    if _excused(writes, missing, analysis, instance):
        return None
    read = _read(field.field, writes, analysis, instance)
    return None if read is None else _Gap(field, writes[0], missing[0], read)


def _exits(analysis: Analysis) -> list[Exit]:
    """The ends of the function that has the receiver: setup_context where there is one."""
    names = {m.node.name for m in analysis.unit.setup} or {m.node.name for m in analysis.unit.forward}
    path = analysis.unit.module.path
    return [e for e in analysis.log.exits if e.function in names and e.file == path and not _gives_nothing(e.node)]


def _gives_nothing(node: ast.AST) -> bool:
    """Whether a way out returns no tensor: nothing of it is ever differentiated."""
    if not isinstance(node, ast.Return) or node.value is None:
        return False
    return isinstance(node.value, (ast.Tuple, ast.List)) and not node.value.elts


def _has_default(name: str, analysis: Analysis) -> bool:
    """Whether the constructor or the class body gives the attribute a value."""
    info = analysis.unit.info
    if name in analysis.log.initial:
        return True
    return info is not None and any(name in owner.members for owner in analysis.machine.mro(info))


def _found_there(writes: list[Write], log: ReceiverLog) -> bool:
    """Whether forward surely reads the field before it ever writes it: something else puts it on the fresh receiver."""
    return any(
        r.field == writes[0].field and r.phase == "forward" and r.sure and not r.path and r.order < writes[0].order
        for r in log.reads
    )


def _excused(writes: list[Write], missing: list[Exit], analysis: Analysis, instance: bool) -> bool:
    """Whether the branch asks if there will be a backward at all, or, for a layer, something that never changes."""
    log = analysis.log
    if any(arm == "body" or arm.startswith(("except", "case")) for w in writes for _, arm in w.path):
        return True
    paths = [w.path for w in writes] + [e.path for e in missing]
    tests = list(_tests(paths, log))
    if any(_asks_for_backward(test, analysis) for test in tests):
        return True
    if not instance and _saves_nothing(missing, writes, log):
        return True
    if instance and _first_call_only(writes, log):
        return True
    for exit_ in missing:
        if any(_GRAD_MODE.search(code_of(statement)) for statement in _arm(exit_, log)):
            return True
    # A branch of a layer that asks its configuration goes the same way in every call.
    return instance and bool(tests) and all(_constant(test, analysis) for test in tests)


def _saves_nothing(missing: list[Exit], writes: list[Write], log: ReceiverLog) -> bool:
    """Whether the way out saves no tensor while the other does: it is not meant to be differentiated."""
    inside = {step for write in writes for step in write.path}
    kept = [save.path for save in log.saves if save.phase == "forward"]
    return bool(kept) and all(set(path) & inside for path in kept) and all(not inside & set(e.path) for e in missing)


def _first_call_only(writes: list[Write], log: ReceiverLog) -> bool:
    """Whether the branch asks a flag of the layer that only the branch itself sets: a value made once, on first use."""
    shared = set(writes[0].path).intersection(*(w.path for w in writes))
    for step in shared:
        branch = log.branches.get(step[0])
        if branch is None or any(isinstance(n, ast.Name) and n.id != "self" for n in walk(branch.test)):
            continue
        asked = {n.attr for n in walk(branch.test) if isinstance(n, ast.Attribute)}
        flags = [w for w in log.writes if w.field in asked and w.phase == "forward"]
        if flags and all(step in w.path for w in flags):
            return True
    return False


def _tests(paths: Iterable[Path], log: ReceiverLog) -> Iterator[ast.expr]:
    seen: set[int] = set()
    for path in paths:
        for branch, _ in path:
            if branch in log.branches and branch not in seen:
                seen.add(branch)
                yield log.branches[branch].test


def _arm(exit_: Exit, log: ReceiverLog) -> Iterator[ast.stmt]:
    """The statements of the branch that leaves early."""
    if exit_.path:
        branch, arm = exit_.path[-1]
        node = log.branches.get(branch)
        if isinstance(node, ast.If):
            yield from (
                s for s in (node.body if arm == "then" else node.orelse) if isinstance(s, (ast.Assert, ast.Expr))
            )


def _asks_for_backward(test: ast.expr, analysis: Analysis) -> bool:
    """A test of the gradient mode, of the receiver itself, or of a local name that stands for one of these."""
    text = code_of(test)
    if _GRAD_MODE.search(text):
        return True
    names = {n.id for n in walk(test) if isinstance(n, ast.Name)}
    attributed = {n.value.id for n in walk(test) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}
    for method in (*analysis.unit.forward, *analysis.unit.setup):
        parameters = [a.arg for a in (*method.node.args.posonlyargs, *method.node.args.args)]
        if parameters and parameters[0] in names - attributed:
            return True
        for statement in statements(method.node.body):
            if isinstance(statement, ast.Assign) and any(
                isinstance(t, ast.Name) and t.id in names for t in statement.targets
            ):
                if _GRAD_MODE.search(code_of(statement.value)):
                    return True
    return False


def _constant(test: ast.expr, analysis: Analysis) -> bool:
    """Whether a test reads only module constants, and attributes that the constructor sets and forward does not."""
    written = {w.field for w in analysis.log.writes if w.phase == "forward"} | {"training"}
    for node in walk(test):
        if isinstance(node, ast.Name) and node.id not in ("self", "len", "isinstance") and not node.id.isupper():
            return False
        if isinstance(node, ast.Attribute) and node.attr in written:
            return False
    return True


def _read(field: str, writes: list[Write], analysis: Analysis, instance: bool) -> Read | None:
    """A read of backward that the missing path reaches: no test of backward tells the paths apart."""
    log = analysis.log
    entries = {m.node.name for m in analysis.unit.backward}
    if not instance and any(w.field == field and w.phase == "backward" for w in log.writes):
        return None  # backward knows that it may be missing
    words = {word for w in writes for text, _ in facts(w.path, log) for word in _words(text)}
    for read in log.reads:
        if read.field != field or read.phase != "backward" or read.file != analysis.unit.module.path:
            continue
        if not read.sure or read.function not in entries or _asked(read, field) or _behind_another(read):
            continue
        if instance:
            asked = {word for text, _ in facts(read.path, log) for word in _words(text)}
            if not asked & words - {field, "self"}:
                return read
        elif not read.path and read.function not in log.ended.values():
            # Where backward may have returned before, a test that is not on the read's path told the paths apart.
            return read
    return None


def _behind_another(read: Read) -> bool:
    """Whether an operand before it decides if the read happens at all: ``ctx.kind and ctx.value``."""
    if read.scope is None:
        return False
    for node in walk(read.scope):
        if isinstance(node, ast.BoolOp) and any(read.node is n for value in node.values[1:] for n in walk(value)):
            return True
    return False


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text)) - _NO_NAMES


def _asked(read: Read, field: str) -> bool:
    """Whether the function around a read tests for the attribute: hasattr, getattr with a default."""
    if read.scope is None:
        return True
    for node in walk(read.scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr"):
            if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) and node.args[1].value == field:
                return True
    return False
