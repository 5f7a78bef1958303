"""All types of a file that share functions, planned together."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from cachelint.checks import FileContext
from cachelint.classify import relative
from cachelint.fix.edits import Outcome, Refusal, Text
from cachelint.fix.functions.assembly import Assembly
from cachelint.fix.functions.fields import CannotPlan, Field, judge
from cachelint.fix.functions.lent import touches
from cachelint.fix.functions.scope import FORWARD, SETUP, Routine, Scope, with_default
from cachelint.index.project import Project
from cachelint.infer.values import UNKNOWN, Inst
from cachelint.model import Finding


@dataclass
class Family:
    """The types, their routines, and the findings by field."""

    file: FileContext
    text: Text
    scopes: list[Scope]
    findings: dict[str, list[Finding]]
    routines: list[Routine] = field(default_factory=list)
    foreign: list[Routine] = field(default_factory=list)
    """Those in other files."""

    def __post_init__(self) -> None:
        seen: dict[int, Routine] = {}
        for scope in self.scopes:
            seen.update(scope.routines)
        own = self.file.module.path
        self.routines = sorted((r for r in seen.values() if r.path == own), key=lambda r: r.node.lineno)
        self.foreign = [routine for routine in seen.values() if routine.path != own]

    # -- answers -----------------------------------------------------------------------------------------------------

    def outcomes(self) -> Iterator[Outcome]:
        """A plan for the fields that can move, one more for those of unknown kind; a refusal for every other finding."""
        try:
            self.check_whole()
        except CannotPlan as error:
            for findings in self.findings.values():
                yield from _refused(findings, error)
            return
        fields: list[Field] = []
        for name, findings in self.findings.items():
            try:
                fields.append(self.judged(name, findings))
            except CannotPlan as error:
                yield from _refused(findings, error)
        # What is left of a value of unknown kind may be found wanting by the check of the new text: on its own, then.
        objects = [item for item in fields if item.split and isinstance(item.value.ref, Inst)]
        apart = [item for item in fields if item.split and item.value.kinds & UNKNOWN and item not in objects]
        yield from self.together([item for item in fields if item not in apart and item not in objects])
        yield from self.together(apart)
        for item in objects:
            yield from self.together([item])

    def judged(self, name: str, findings: Sequence[Finding]) -> Field:
        """A field's facts. Raises CannotPlan."""
        self.check_foreign(name)
        self.settle_defaults(name)
        item = judge(name, findings, self.scopes, self.routines)
        reader = outside_reader(name, self.file.project)
        if reader is not None:
            self.file.project.used.add(reader[0])
            raise CannotPlan(f"{relative(reader[0])}:{reader[1]} reads it off the graph", "read from outside", name)
        self.check_mangled(name)
        return item

    def settle_defaults(self, name: str) -> None:
        """Take ``getattr(ctx, "x", None)`` for a plain read where every forward surely sets the field."""
        mains = self.mains(FORWARD, SETUP)
        for main in mains:
            stores = {main.flow.statement(use.node) for use in main.of("store", name) if not use.nested}
            before, end = main.flow.surely(stores)
            if not stores or end is False or not all(before.get(item, False) for item in main.flow.returns):
                return
        deleted = any(routine.of("delete", name) for routine in self.routines)
        if not mains or deleted:
            return
        for routine in self.routines:
            routine.uses = [
                replace(use, kind="load") if use.field == name and with_default(use) else use for use in routine.uses
            ]

    def check_mangled(self, name: str) -> None:
        """Raise CannotPlan where code names a private field as Python stores it: ``ctx.__x`` is ``ctx._Class__x``."""
        if not name.startswith("__") or name.endswith("__"):
            return
        project = self.file.project
        for owner in {routine.owner.name for routine in self.routines if routine.owner is not None}:
            mark = f"_{owner.lstrip('_')}{name}"
            for path in project.mentioning(mark.encode()):
                project.used.add(path)
                raise CannotPlan(f"{relative(path)} uses it as `{mark}`", "read from outside", name)

    def together(self, fields: list[Field]) -> Iterator[Outcome]:
        """One plan for all of them; a field that makes it impossible is refused and left out."""
        left = list(fields)
        while left:
            try:
                yield Assembly(self, left).plan()
                return
            except CannotPlan as error:
                out = [item for item in left if error.field is None or item.name == error.field]
                left = [item for item in left if item not in out]
                for item in out:
                    yield from _refused(item.findings, error)

    # -- what must hold for all --------------------------------------------------------------------------------------

    def check_whole(self) -> None:
        """Raise CannotPlan where something stands in the way of moving any field."""
        path = self.file.module.path
        for routine in self.foreign:
            if routine.main or routine.of("save"):
                raise CannotPlan(
                    f"`{routine.name}`, which saves, is in another file ({relative(routine.path)})", "in another file"
                )
        for routine in (*self.routines, *self.foreign):
            if routine.flow.generator:
                raise CannotPlan(f"`{routine.name}` is a generator", "generator")
            for use in routine.of("escape"):
                raise CannotPlan(
                    f"`{routine.receiver}` is handed to code that can't be followed (line {use.node.lineno}), which may "
                    "read the attributes",
                    "ctx escapes",
                )
        names = {scope.context.analysis.unit.info.name for scope in self.scopes if scope.context.analysis.unit.info}
        self.check_direct_calls(names)
        for name, places in self.file.project.headers.items():
            for other, bases in places:
                if other != path and names & set(bases) and name not in names:
                    self.file.project.used.add(other)
                    raise CannotPlan(f"`{name}` in {relative(other)} derives from it", "derived elsewhere")

    def check_foreign(self, name: str) -> None:
        """Raise CannotPlan where a helper in another file uses the field itself."""
        for routine in self.foreign:
            if touches(routine, (name,)):
                where = f"{relative(routine.path)}:{routine.node.lineno}"
                raise CannotPlan(f"`{routine.name}` uses it in another file ({where})", "in another file", name)

    def check_direct_calls(self, names: set[str]) -> None:
        """Raise CannotPlan where code calls forward or backward with a ctx of its own, which need not know how to save."""
        project = self.file.project
        for name in names:
            places: dict[str, list[int]] = {}
            for path, position in project.direct_calls(name):
                places.setdefault(path, []).append(position)
            for path, found in places.items():
                own = path == self.file.module.path
                known = sum(_calls(call, name) for call in self.calls()) if own else 0
                if len(found) > known:
                    line = project.raw(path).count(b"\n", 0, found[0]) + 1
                    project.used.add(path)
                    raise CannotPlan(f"{relative(path)}:{line} calls it with a ctx of its own", "called without apply")

    def calls(self) -> list[ast.Call]:
        """The calls by which routines hand the receiver on."""
        return [link.call for routine in self.routines for link in routine.links]

    def reachable(self, main: Routine) -> list[Routine]:
        """A routine and those that it hands the receiver to."""
        found: list[Routine] = []
        todo = [main]
        while todo:
            routine = todo.pop()
            if routine not in found:
                found.append(routine)
                todo += [link.target for link in routine.links]
        return found

    def mains(self, *roles: str) -> list[Routine]:
        """The routines that PyTorch calls, in these roles."""
        found: list[Routine] = []
        for scope in self.scopes:
            for role in roles:
                for routine in scope.mains.get(role, ()):
                    if routine not in found:
                        found.append(routine)
        return found


def _calls(call: ast.Call, name: str) -> bool:
    """Whether a call is ``name.forward(…)`` or its like."""
    func = call.func
    return isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == name


def _refused(findings: Sequence[Finding], error: CannotPlan) -> Iterator[Refusal]:
    for finding in findings:
        yield Refusal(finding, error.reason, error.kind)


_READ = re.compile(rb"grad_fn\s*\.\s*(\w+)|getattr\([^()\n]*grad_fn\s*,\s*[\"'](\w+)[\"']")
_NEXT = re.compile(rb"next_functions[^\n]*")
_OF_AN_ITEM = re.compile(rb"\]\s*\.\s*(\w+)")


def outside_reader(name: str, project: Project) -> tuple[str, int] | None:
    """Code that reads the attribute off the graph: ``y.grad_fn.name``. Its file and line."""
    return project.once("read off the graph", lambda: _off_the_graph(project)).get(name)


def _off_the_graph(project: Project) -> dict[str, tuple[str, int]]:
    """Every attribute that code of the project reads off the graph, with the first place that does."""
    found: dict[str, tuple[str, int]] = {}
    for path in project.mentioning(b"grad_fn", b"next_functions"):
        raw = project.raw(path)
        reads = [*_READ.finditer(raw)]
        for line in _NEXT.finditer(raw):
            reads += _OF_AN_ITEM.finditer(raw, line.start(), line.end())
        for match in sorted(reads, key=lambda match: match.start()):
            word = match[match.lastindex or 0].decode("utf-8", "replace")
            found.setdefault(word, (path, raw.count(b"\n", 0, match.start()) + 1))
    return found
