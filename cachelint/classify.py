"""From abstract values to verdicts: SAFE, RECOMPUTE or SAVE for each field, with the evidence that led there."""

from __future__ import annotations

import ast
import math
import os
from dataclasses import dataclass
from typing import Final

from cachelint.collect import held, uses
from cachelint.collect.log import Write
from cachelint.index.walk import code_of, walk
from cachelint.infer.analysis import Analysis, options
from cachelint.infer.symbols import settle
from cachelint.infer.values import (
    COST_NAMES,
    DEVICE,
    HIGH,
    HOST,
    LIVE,
    LOW,
    MEDIUM,
    NONE,
    PERSIST,
    RANDOM,
    SAVED,
    UNKNOWN,
    WORKSPACE,
    Bound,
    Cls,
    Ext,
    Func,
    Inst,
    Mod,
    Partial,
    Seq,
    Value,
    Why,
    carried,
    join,
    replace,
)
from cachelint.model import Confidence, Evidence, FieldClass, FieldReport, Origin, Storage, TypeReport
from cachelint.resolution import resolution
from cachelint.settings import Settings
from cachelint.source import display_path

_CONFIDENCE: Final = {HIGH: Confidence.HIGH, MEDIUM: Confidence.MEDIUM, LOW: Confidence.LOW}


@dataclass(frozen=True)
class Verdict:
    """The judgement of one value before it is put into words."""

    cls: FieldClass
    storage: Storage
    origin: Origin
    persistent: bool
    cost: int
    value: Value


def type_report(analysis: Analysis, settings: Settings, child_saves: bool = False) -> TypeReport:
    """All fields of a type with their verdicts."""
    unit = analysis.unit
    fields = () if unit.trainer else tuple(_fields(analysis, settings))
    dialect = "trainer" if unit.trainer else unit.dialect.name
    return TypeReport(relative(unit.module.path), unit.line, unit.name, dialect, row(fields, child_saves), fields)


def row(fields: tuple[FieldReport, ...], child_saves: bool) -> str:
    """The Class column: the join of the live fields' classes, then the children that save."""
    classes = {f.cls for f in fields if f.read and not f.registered}
    hazards = [c.value for c in (FieldClass.RECOMPUTE, FieldClass.SAVE) if c in classes]
    own = " + ".join(hazards)
    if not own:
        own = "SAFE" if classes or not child_saves else ""
    if child_saves and FieldClass.SAVE not in classes:
        own = f"{own} + SAVE (fan-out)" if own else "SAVE (fan-out)"
    return own


def _fields(analysis: Analysis, settings: Settings) -> list[FieldReport]:
    log = analysis.log
    writes: dict[str, list[Write]] = {}
    for write in log.writes:
        if write.phase == "forward" and write.field not in _CORE:
            writes.setdefault(write.field, []).append(write)
    reads = {r.field for r in log.reads if r.phase == "backward"}
    escaped = any(e.phase == "backward" for e in log.escapes) or analysis.machine.exhausted
    outputs = output_roots(analysis)
    saved = _saved_roots(analysis) if analysis.unit.receiver_is_self else frozenset()
    reports = []
    for name, events in writes.items():
        if name not in reads and all(event.grown or event.outer for event in events):
            continue  # what a base or a constructor keeps for everybody is a field of those that use it
        value = _kept(events[0].value, analysis)
        for event in events[1:]:
            value = join(value, _kept(event.value, analysis))
        guessed = value.kinds == HOST and value.sure == LOW and value.ref is None
        if all(event.grown for event in events):
            guessed = value.kinds == HOST and carried(value).sure < HIGH
        if guessed and name in reads and analysis.unit.receiver_is_self and uses.as_tensor(name, analysis):
            value = replace(value, kinds=DEVICE, sure=MEDIUM)
        persistent = _crosses_steps(name, events, analysis, bool(value.kinds & DEVICE))
        verdict = judge(value, analysis, outputs, persistent, settings)
        if verdict.origin is Origin.INPUT and not isinstance(value.ref, Seq) and uses.only_foreign(name, analysis):
            verdict = _handle_only(verdict)
        full = carried(value)
        registered = bool(saved and full.roots & saved) and verdict.cls is not FieldClass.SAFE
        read = name in reads or escaped
        best = max(events, key=lambda e: (_weight(_kept(e.value, analysis)), -e.order))
        reports.append(_report(name, best.node, verdict, registered, read, analysis, best.file))
    reports.extend(_saved_reports(analysis, outputs, {r.field for r in reports}, settings))
    for store, value in held.slots(analysis):
        verdict = judge(value, analysis, outputs, False, settings)
        reports.append(_report(store.name, store.node, verdict, False, True, analysis, store.file))
    return reports


def _kept(value: Value, analysis: Analysis) -> Value:
    """A written value with what it holds: a closure's captures; a layer of one's own is a handle."""
    ref = value.ref
    if isinstance(ref, (Func, Partial, Bound, Seq)):
        captures = held.captured(value)
        if captures is not None:
            return captures
    shared = isinstance(ref, Inst) and "side-channel" in value.tags  # an object of the module's: a handle, too
    if shared or (isinstance(ref, (Inst, Seq)) and held.is_layer(value, analysis)):
        return Value(HOST, tags=frozenset(("handle",)), why=value.why)
    return value


_NO_HISTORY: Final = frozenset(("detached", "data"))
_INSTANCES: Final = frozenset(("layer", "graph-node"))
_CORE: Final = frozenset("saved_tensors save_for_backward needs_input_grad saver _saver training".split())


def _weight(value: Value) -> tuple[bool, bool, int]:
    full = carried(value)
    return (bool(full.kinds & DEVICE), bool(full.kinds & UNKNOWN), full.cost)


def output_roots(analysis: Analysis) -> frozenset[str]:
    """Storages that forward returns and that are not its inputs."""
    if analysis.forward_result is None:
        return frozenset()
    roots = carried(analysis.forward_result).roots
    return frozenset(root for root in roots if root.startswith(("n", "output")))


def _handle_only(verdict: Verdict) -> Verdict:
    """A parameter object kept for attributes that no tensor has: its values go another way."""
    told = "backward reads only attributes of it that tensors don't have"
    last = verdict.value.why
    where = Why(last.path, last.line, told, last) if last is not None else None
    value = replace(verdict.value, sure=LOW, why=where)
    return Verdict(FieldClass.SAFE, Storage.HOST, Origin.PERSISTENT, False, LIVE, value)


def _saved_roots(analysis: Analysis) -> frozenset[str]:
    roots: set[str] = set()
    for save in analysis.log.saves:
        for value in save.values:
            roots |= carried(value).roots
    return frozenset(roots)


def _crosses_steps(name: str, events: list[Write], analysis: Analysis, tensor: bool) -> bool:
    """A layer's field that forward reads before it writes it, or writes only when it is not there yet."""
    if analysis.unit.dialect.name not in _INSTANCES:
        return False  # a node of autograd lives for one call
    log = analysis.log
    if not tensor and not any(carried(e.value).kinds & (DEVICE | UNKNOWN) for e in events):
        return False
    first = min((e.order for e in events if not e.guards), default=math.inf)
    # What names the container that is put into is no read of what it held.
    grown = [e for e in events if e.grown]
    named = {id(part) for e in grown for part in walk(e.node)}
    if grown:
        named |= {id(r.node) for r in log.reads if r.field == name and uses.only_named(r)}
    early = any(
        r.field == name and r.phase == "forward" and r.unset and r.order < first and id(r.node) not in named
        for r in log.reads
    )
    guarded = all(_guarded(e, name, log.initial) for e in events)
    return early or guarded


def _guarded(event: Write, name: str, initial: dict[str, Value]) -> bool:
    """Written only under a test of the field itself, or of a flag that the same branch sets."""
    return bool(event.guards) and (name in event.guards or any(_is_flag(g, initial) for g in event.guards))


def _is_flag(name: str, initial: dict[str, Value]) -> bool:
    return any(
        word in name
        for word in ("valid", "cached", "is_init", "initialized", "initialised", "uploaded", "ready", "built")
    )


def judge(value: Value, analysis: Analysis, outputs: frozenset[str], persistent: bool, settings: Settings) -> Verdict:
    """The class of a value by what it carries."""
    full = carried(value)
    storage = _storage(full)
    if storage is Storage.HOST:
        return Verdict(FieldClass.SAFE, storage, _host_origin(value), False, LIVE, full)
    cost = analysis.machine.true_cost(full)
    if any(root.startswith("g:") for root in full.roots) and full.roots & held.written_globals(analysis):
        cost = WORKSPACE
    origin = _origin(full, cost, outputs, persistent, analysis)
    if storage is Storage.UNKNOWN and settings.unknown_storage == "host":
        return Verdict(FieldClass.SAFE, storage, origin, False, cost, full)
    save = cost >= SAVED or origin is Origin.OUTPUT or persistent
    if not save and full.deps:
        absent = full.deps & absent_inputs(analysis)
        if absent:
            told = f"backward is not given {', '.join(f'`{name}`' for name in sorted(absent))}"
            last = full.why
            node = analysis.unit.backward[0]
            full = replace(full, why=Why(node.module.path, node.node.lineno, told, last))
            save = True
    cls = FieldClass.SAVE if save else FieldClass.RECOMPUTE
    return Verdict(cls, storage, origin, persistent, cost, full)


def absent_inputs(analysis: Analysis) -> frozenset[str]:
    """Tensor inputs of a layer's forward that its backward, which takes others, is not given."""
    unit = analysis.unit
    if unit.dialect.name not in _INSTANCES or not unit.receiver_is_self or len(unit.backward) != 1:
        return frozenset()
    node = unit.backward[0].node
    args, switches = node.args, options(node)
    # Without the receiver and the gradient.
    taken = len([a for a in (*args.posonlyargs, *args.args)[2:] if a.arg not in switches])
    if taken < 1 or args.vararg is not None or args.kwonlyargs:
        return frozenset()
    names = {a.arg for a in (*args.posonlyargs, *args.args)}
    machine = analysis.machine
    missing = [name for name in analysis.parameters[taken:] if name not in names]
    return frozenset(
        name
        for name in missing
        if name in machine.symbols
        and (machine.settled[name].kinds if name in machine.settled else settle(machine.symbols[name]).kinds) & DEVICE
    )


def _storage(value: Value) -> Storage:
    if value.kinds & DEVICE:
        container = "container" in value.tags
        return Storage.MAYBE if value.kinds & (NONE | (0 if container else HOST)) else Storage.DEVICE
    return Storage.UNKNOWN if value.kinds & UNKNOWN else Storage.HOST


def _host_origin(value: Value) -> Origin:
    handle = isinstance(value.ref, (Func, Cls, Inst, Bound, Mod, Partial)) or "handle" in value.tags
    if isinstance(value.ref, Ext):
        handle = True
    return Origin.HANDLE if handle else Origin.HOST


def _origin(value: Value, cost: int, outputs: frozenset[str], persistent: bool, analysis: Analysis) -> Origin:
    if persistent:
        return Origin.PERSISTENT
    if cost == RANDOM:
        return Origin.RANDOM
    if cost == LIVE and any(root.startswith("p:") for root in value.roots):
        return Origin.INPUT
    if value.roots & outputs or "output" in value.tags:
        return Origin.OUTPUT
    if cost in (PERSIST, WORKSPACE) and value.roots and all(r.startswith(("a:", "g:", "p:self.")) for r in value.roots):
        return Origin.PERSISTENT
    return Origin.INTERMEDIATE


def rule_for(verdict: Verdict) -> str | None:
    """The code of the finding that a verdict is, by the order of the design."""
    if verdict.cls is FieldClass.SAFE:
        return None
    tags = verdict.value.tags
    if verdict.persistent:
        return "CL107"
    if verdict.cost == WORKSPACE:
        return "CL108"
    if "side-channel" in tags:
        return "CL111"
    if verdict.cost == RANDOM:
        return "CL105"
    if verdict.origin is Origin.OUTPUT:
        return "CL104"
    if "closure" in tags:
        return "CL109"
    if "container" in tags:
        return "CL106"
    if verdict.origin is Origin.INPUT and verdict.cls is FieldClass.RECOMPUTE:
        return "CL101"
    return "CL102" if verdict.cls is FieldClass.RECOMPUTE else "CL103"


def _report(
    name: str, node: ast.AST, verdict: Verdict, registered: bool, read: bool, analysis: Analysis, file: str
) -> FieldReport:
    rule = None
    if not registered:
        rule = rule_for(verdict) if read else "CL201" if verdict.cls is not FieldClass.SAFE else None
    evidence = _evidence(verdict, analysis, node, file)
    line = getattr(node, "lineno", analysis.unit.line)
    return FieldReport(
        field=name,
        line=line,
        column=getattr(node, "col_offset", 0) + 1,
        end_line=getattr(node, "end_lineno", line) or line,
        end_column=(getattr(node, "end_col_offset", 0) or 0) + 1,
        cls=verdict.cls,
        storage=verdict.storage,
        origin=verdict.origin,
        registered=registered,
        read=read,
        persistent=verdict.persistent,
        rule=rule,
        confidence=_CONFIDENCE[verdict.value.sure],
        reason=reason(verdict),
        resolution=resolution(name, verdict.cls, verdict.origin, registered, read, verdict, analysis),
        evidence=evidence,
    )


def reason(verdict: Verdict) -> str:
    """One sentence: why this class."""
    last = verdict.value.why
    told = f": {last.text}" if last is not None and last.text else ""
    if verdict.cls is FieldClass.SAFE:
        if verdict.storage is Storage.UNKNOWN:
            return "nothing shows whether it is a host value or a tensor" + told
        return ("a handle, not a tensor" if verdict.origin is Origin.HANDLE else "a host value") + told
    if verdict.persistent:
        return "device state that outlives the step" + told
    if verdict.cls is FieldClass.SAVE and verdict.cost < SAVED and verdict.origin is not Origin.OUTPUT:
        return "not derivable from the inputs that backward is given" + told
    if verdict.origin is Origin.INPUT:
        names = ", ".join(sorted(r[2:] for r in verdict.value.roots if r.startswith("p:")))
        many = "s" if "," in names else ""
        return f"the live input{many} {names} or an alias of it" if names else "an alias of a live input"
    if verdict.origin is Origin.OUTPUT:
        return "forward's own output" + (", detached" if verdict.value.tags & _NO_HISTORY else "")
    if verdict.cost == RANDOM:
        return f"a random draw ({last.text.partition(':')[0]})" if last is not None else "a random draw"
    if verdict.cls is FieldClass.RECOMPUTE:
        return "cheap to derive from the live inputs" + told
    return COST_NAMES.get(verdict.cost, "not derivable from the live inputs") + told


def _evidence(verdict: Verdict, analysis: Analysis, node: ast.AST, file: str) -> tuple[Evidence, ...]:
    links = [] if verdict.value.why is None else verdict.value.why.chain()
    if not links:
        links = [Why(file, getattr(node, "lineno", analysis.unit.line), "assigned here")]
    return tuple(Evidence(relative(link.path), link.line, link.text) for link in links)


def _saved_reports(
    analysis: Analysis, outputs: frozenset[str], taken: set[str], settings: Settings
) -> list[FieldReport]:
    """What goes through the save API directly is a field too, under the name of the saved expression."""
    log = analysis.log
    read = any(r.phase == "backward" for r in log.unpacks) or any(e.phase == "backward" for e in log.escapes)
    reports: list[FieldReport] = []
    field_roots = frozenset().union(*(carried(w.value).roots for w in log.writes)) if log.writes else frozenset()
    for save in log.saves:
        if save.phase != "forward" or save.api.startswith("retain"):
            continue
        for expr, value in zip(save.exprs, save.values, strict=False):
            target = expr.value if isinstance(expr, ast.Starred) else expr
            name = code_of(target)
            if name in taken or value.kinds == NONE:
                continue
            if analysis.unit.receiver_is_self and carried(value).roots & field_roots:
                continue
            taken.add(name)
            known = value if value.kinds & DEVICE else replace(value, kinds=value.kinds & NONE | DEVICE)
            if value.kinds == HOST and value.ref is None and not analysis.unit.native:
                known = value  # a framework of its own may save what it likes
            verdict = judge(known, analysis, outputs, False, settings)
            reports.append(
                _report(name, expr, verdict, True, read or analysis.unit.receiver_is_self, analysis, save.file)
            )
    return reports


def relative(path: str) -> str:
    """A path as reports show it: relative to the working directory, with forward slashes."""
    return display_path(path, os.getcwd()) if os.path.isabs(path) else path.replace(os.sep, "/")
