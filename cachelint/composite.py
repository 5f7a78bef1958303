"""Layers that hold other layers: which children a type calls, and what each of them keeps between the two passes.

A verdict that looks at a composite's own fields alone calls it SAFE while a child keeps device state, so children are
interpreted as well, each with the methods that the composite calls on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cachelint.classify import type_report
from cachelint.collect.log import ChildCall
from cachelint.collect.types import Method, Unit, unit_of
from cachelint.dialects import by_name
from cachelint.index.module import ClassInfo
from cachelint.index.project import Project
from cachelint.infer.analysis import Analysis, analyse
from cachelint.infer.values import Inst, Seq, Value
from cachelint.model import FieldClass, FieldReport, TypeReport
from cachelint.settings import Settings

_INSTANCES = ("layer", "graph-node")
_DEEPEST = 6


@dataclass(frozen=True, slots=True, eq=False)
class Child:
    """An object that a type calls in forward: the attribute that holds it (empty for a local name) and the calls."""

    attribute: str
    inst: Inst
    single: bool
    made_in_forward: bool
    forward: tuple[ChildCall, ...]
    backward: tuple[ChildCall, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A child's class as the composite uses it. ``layer``: it is a type of its own, and has findings of its own."""

    unit: Unit
    analysis: Analysis
    report: TypeReport
    saves: bool
    layer: bool

    @property
    def state(self) -> tuple[FieldReport, ...]:
        """What it keeps on the device from forward to backward, registered or not."""
        return tuple(f for f in self.report.fields if f.read and f.cls is not FieldClass.SAFE)


@dataclass(slots=True)
class Composites:
    """Children of the types of one file, each class judged once."""

    project: Project
    settings: Settings
    _judged: dict[object, Judged | None] = field(default_factory=dict)
    _depth: int = 0

    def children(self, analysis: Analysis) -> list[Child]:
        """The objects whose methods forward calls, in the order of the first call."""
        log = analysis.log
        if not log.child_calls:
            return []
        held: dict[int, tuple[str, bool]] = {}
        for name, value in log.initial.items():
            for inst, single in _instances(value):
                held.setdefault(id(inst), (name, single))
        made: set[int] = set()
        for write in log.writes:
            if write.phase == "forward":
                for inst, single in _instances(write.value):
                    if id(inst) not in held:
                        held[id(inst)] = (write.field, single)
                        made.add(id(inst))
        calls: dict[int, list[ChildCall]] = {}
        for call in log.child_calls:
            calls.setdefault(id(call.child), []).append(call)
        found = []
        for key, group in calls.items():
            forward = tuple(c for c in group if c.phase == "forward")
            backward = tuple(c for c in group if c.phase == "backward")
            attribute, single = held.get(key, ("", False))
            inst = group[0].child
            late = key in made or (key not in held and inst.built_here)
            if forward:
                found.append(Child(attribute, inst, single, late, forward, backward))
        return found

    def judge(self, child: Child) -> Judged | None:
        """What a child's class keeps, by the methods that are called on it. None where that leads in a circle."""
        info = child.inst.info
        forward = tuple(sorted({_called(info, c.method) for c in child.forward}))
        backward = tuple(sorted({_called(info, c.method) for c in child.backward}))
        own = unit_of(info, self.project, self.settings)
        key: object = id(info) if own is not None else (id(info), forward, backward)
        if key in self._judged:
            return self._judged[key]
        self._judged[key] = None
        if self._depth >= _DEEPEST or (own is not None and (own.trainer or own.dialect.name not in _INSTANCES)):
            return None
        unit = own or self._helper(info, forward, backward)
        if unit is None:
            return None
        self._depth += 1
        try:
            analysis = analyse(unit, self.project)
            below = self.saves(analysis)
        finally:
            self._depth -= 1
        report = type_report(analysis, self.settings, below)
        keeps = any(f.read and f.cls is FieldClass.SAVE for f in report.fields)
        self._judged[key] = Judged(unit, analysis, report, keeps or below, own is not None)
        return self._judged[key]

    def saves(self, analysis: Analysis) -> bool:
        """Whether a child that forward calls keeps what only it can give back, registered or not."""
        if analysis.unit.dialect.name not in _INSTANCES or analysis.unit.trainer:
            return False
        judged = [self.judge(child) for child in self.children(analysis)]
        return any(one is not None and one.saves for one in judged)

    def _helper(self, info: ClassInfo, forward: tuple[str, ...], backward: tuple[str, ...]) -> Unit | None:
        """A class that is no layer, with the methods that are called on it in place of forward and backward."""
        first, second = _methods(info, forward), _methods(info, backward)
        if not first or not second:
            return None
        spec = by_name("layer", self.settings)
        return Unit(info.qualname, info.node.lineno, info.module, spec, "self", info, first, (), second)


def _instances(value: Value) -> list[tuple[Inst, bool]]:
    """The objects of project classes in a value, and whether each is the value itself (not one of several)."""
    if isinstance(value.ref, Inst):
        return [(value.ref, True)]
    if isinstance(value.ref, Seq):
        return [(item.ref, False) for item in value.ref.each() if isinstance(item.ref, Inst)]
    return []


def _called(info: ClassInfo, method: str) -> str:
    return "forward" if method == "__call__" and info.method("__call__") is None else method


def _methods(info: ClassInfo, names: tuple[str, ...]) -> tuple[Method, ...]:
    found = ((name, info.method(name)) for name in names)
    return tuple(Method(node, info, info.module) for _, node in found if node is not None)
