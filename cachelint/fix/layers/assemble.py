"""All fields of one class, planned together."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cachelint.checks import TypeContext
from cachelint.fix.edits import After, Before, Edit, Outcome, Plan, Refusal, Replace, Require, Rewrite, Text
from cachelint.fix.functions.fields import CannotPlan
from cachelint.fix.layers import contract as contracts
from cachelint.fix.layers import derive, live, register
from cachelint.fix.layers.view import BACKWARD, FORWARD, ClassView, MethodView, Use, is_none, outside_reader
from cachelint.model import Applicability, FieldClass, Finding

LIVE, DERIVE, REGISTER = "live", "derive", "register"


@dataclass
class Choice:
    """What becomes of each field: its findings, and for registered ones why it was not derived."""

    findings: dict[str, list[Finding]]
    live: dict[str, str] = field(default_factory=dict)
    """By field the parameter of forward."""
    derived: list[derive.Derived] = field(default_factory=list)
    registered: list[register.Saved] = field(default_factory=list)
    why: dict[str, str] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)


class Layer:
    """One class that keeps its state on ``self``."""

    def __init__(
        self, context: TypeContext, text: Text, findings: Mapping[str, list[Finding]], side: Sequence[Finding]
    ):
        self.context = context
        self.text = text
        self.view = ClassView(context, text)
        self.findings = dict(findings)
        self.side = list(side)
        self.pairs = live.pairs(self.view)
        self.contract = contracts.contract_of(self.view)

    def outcomes(self) -> Iterator[Outcome]:
        """A plan for the fields that can be mended, a refusal for every other finding."""
        try:
            self.check_whole()
        except CannotPlan as error:
            for finding in (*(f for group in self.findings.values() for f in group), *self.side):
                if finding.code == "CL202":
                    continue
                yield Refusal(finding, error.reason, error.kind)
            return
        choice = self.choose()
        yield from choice.refused
        doubtful = [saved for saved in choice.registered if saved.doubt]
        if doubtful and len(doubtful) < len(self.findings) and not self.contract.doubt:
            choice.registered = [saved for saved in choice.registered if not saved.doubt]
        plan = self.plan(choice)
        if plan is not None:
            yield plan
        elif doubtful:
            choice.registered = doubtful
            plan = self.plan(choice)
            if plan is not None:
                yield plan
        covered = set(plan.findings) if plan is not None else set()
        for finding in self.side:
            if finding not in covered and finding.code != "CL202":
                yield Refusal(finding, self.stays(finding, choice), "stays")

    def check_whole(self) -> None:
        """Raise CannotPlan where something stands in the way of any field."""
        view, unit = self.view, self.context.analysis.unit
        if view.forward is None or view.backward is None:
            owner = next(
                (m.owner.name for m in (*unit.forward, *unit.backward) if m.owner is not unit.info and m.owner), ""
            )
            raise CannotPlan(f"forward or backward is inherited from `{owner}`", "inherited")
        if unit.module.text.count("\t") and any(line.startswith("\t") for line in self.text.lines):
            raise CannotPlan("the file is indented with tabs", "tabs")
        if view.odd:
            raise CannotPlan(view.odd, "self escapes")
        if view.forward.flow.generator or view.backward.flow.generator:
            raise CannotPlan("forward or backward is a generator", "generator")

    # -- what becomes of each field ------------------------------------------------------------------------------------

    def choose(self) -> Choice:
        """Read the live input where the field is one, derive it where that is cheap, else register it."""
        view = self.view
        for finding in self.side:
            if finding.code == "CL206" and finding.field and finding.field not in self.findings:
                self.findings[finding.field] = []  # registered: it goes if backward can have it for nothing
        choice = Choice(self.findings)
        cheap: list[str] = []
        reports = {f.field: f for f in self.context.report.fields}
        for name in self.findings:
            report = reports.get(name)
            outside = outside_reader(view, name)
            if report is None or report.cls is not FieldClass.RECOMPUTE:
                choice.why[name] = "it is not cheap to derive"
            elif outside:
                choice.why[name] = f"{outside} reads it from outside the class"
            elif derived := self.as_live(name, choice.why):
                choice.live[name] = derived
            elif not report.registered:
                cheap.append(name)
        self.check_callers(choice)
        cheap = [name for name in cheap if name not in choice.live]
        choice.derived, why = derive.derivable(view, cheap, self.pairs)
        choice.why.update({name: reason for name, reason in why.items() if name in cheap})
        away = {*choice.live, *(n for group in choice.derived for n in group.fields)}
        for name, findings in self.findings.items():
            if name in away:
                continue
            if not findings:
                continue
            try:
                saved = register.argument(view, name)
                register.anchors(view, name)
                choice.registered.append(saved)
            except CannotPlan as error:
                choice.refused += [Refusal(f, error.reason, error.kind) for f in findings]
        return choice

    def as_live(self, name: str, why: dict[str, str]) -> str:
        """The parameter of forward that a field is in every write, empty if it isn't one that backward gets."""
        view = self.view
        found: set[str] = set()
        for use in view.of(name):
            if use.kind == "save" and FORWARD in use.method.roles:
                continue
            if use.kind == "load" and use.method is view.backward:
                continue
            if use.kind == "load" and use.method is view.forward:
                continue
            if use.kind == "store" and use.plain and FORWARD in use.method.roles and BACKWARD not in use.method.roles:
                if is_none(use.value):
                    continue
                found.add(live.alias(view, use.value, use.method, use.statement))
                continue
            if use.kind == "store" and use.plain and is_none(use.value) and FORWARD not in use.method.roles:
                continue
            why[name] = f"`{use.method.name}` uses it in another way (line {use.node.lineno})"
            return ""
        source = found.pop() if len(found) == 1 else ""
        if not source or source not in self.pairs:
            why.setdefault(name, f"backward does not receive `{source}`" if source else "it is not the input itself")
            return ""
        forward = view.forward
        assert forward is not None
        if any(u.method is forward for u in view.of(name, "load")) and forward.flow.bindings.get(source):
            why[name] = f"forward binds `{source}` again"
            return ""
        return source

    def check_callers(self, choice: Choice) -> None:
        """Keep fields whose parameter is optional in backward, where a caller in the project leaves it out."""
        assert self.view.backward is not None
        names = [self.pairs[source] for source in choice.live.values()]
        required = live.optional(self.view, names)
        if not required:
            return
        caller = live.short_call(self.view, len(self.view.backward.positional) - 1)
        if caller:
            for name, source in list(choice.live.items()):
                if self.pairs[source] in required:
                    del choice.live[name]
                    choice.why[name] = f"{caller} calls backward without `{self.pairs[source]}`"

    def stays(self, finding: Finding, choice: Choice) -> str:
        """Why backward goes on reading a field."""
        why = choice.why.get(finding.field or "", "it is not the input itself")
        return f"backward goes on reading the field, registered: {why}"

    # -- the plan --------------------------------------------------------------------------------------------------------

    def plan(self, choice: Choice) -> Plan | None:
        """The edits for all of them."""
        view, text = self.view, self.text
        forward, backward = view.forward, view.backward
        assert forward is not None
        assert backward is not None
        known = {name: self.pairs[source] for name, source in choice.live.items()}
        inside = dict(choice.live)
        edits: list[Edit] = []
        gone: set[ast.stmt] = set()
        lines: dict[ast.stmt, list[str]] = {}
        helpers: list[str] = []
        taken: set[str] = set()
        for group in choice.derived:
            written = derive.write(view, group, self.pairs, taken, inside)
            edits += [*written.edits, *derive.released(view, group, written.inside)]
            gone |= written.gone
            taken |= set(written.known.values())
            known.update(written.known)
            inside.update(written.inside)
            helpers += written.helper
            place = derive.first_use(view, backward, group.fields, ())
            if place is not None:
                lines.setdefault(place, []).extend(written.lines)
        away = {*choice.live, *(n for group in choice.derived for n in group.fields)}
        needed = {self.pairs[s] for s in choice.live.values()}
        needed |= {self.pairs[n] for group in choice.derived for n in group.inputs}
        needed = {n for n in needed if n.isidentifier()}
        again = live.rebound(view, frozenset(needed), known)
        if again:
            return self.without(choice, again)
        required = live.optional(view, sorted(needed))
        folder = live.Folder(text, backward, known, frozenset(needed))
        edits += folder.run()
        edits += [Before(text.span(place), tuple(code)) for place, code in lines.items()]
        edits += self.in_forward(inside, away, gone)
        edits += self.unsave(choice)
        edits += self.clean_up(away, {m.node.name for m in (forward, backward)}, gone)
        if helpers:
            edits.append(After(text.span(backward.node), tuple(helpers)))
        if required:
            edits.append(Require(text.span(backward.node), required))
        if choice.registered:
            edits += register.calls(view, choice.registered, self.width())
            if self.deferred():
                return None
            edits += contracts.join(view, self.contract, text)
        findings = [f for n in away for f in choice.findings[n]] + [
            f for s in choice.registered for f in choice.findings[s.name]
        ]
        findings += [f for f in self.side if f.field in away]
        if not findings:
            return None
        doubt = self.doubt(choice)
        return Plan(
            tuple(findings),
            tuple(edits),
            Applicability.UNSAFE if doubt else Applicability.SAFE,
            self.description(choice),
            (text.span(view.node),),
            notes=self.notes(choice, doubt),
        )

    def notes(self, choice: Choice, doubt: str) -> tuple[str, ...]:
        """What a reviewer may ask: why it is unsafe, and why a cheap field was registered all the same."""
        known = [s.name for s in choice.registered if s.name in choice.why]
        told = [f"`{name}` is registered: {choice.why[name]}" for name in known]
        return (doubt, *told) if doubt else tuple(told)

    def without(self, choice: Choice, names: frozenset[str]) -> Plan | None:
        """The plan with the fields registered whose parameter backward binds to something else."""
        smaller = Choice(choice.findings, why=choice.why, registered=list(choice.registered))
        out: list[str] = []
        for name, source in choice.live.items():
            if self.pairs[source] in names:
                out.append(name)
            else:
                smaller.live[name] = source
        for group in choice.derived:
            if any(self.pairs[n] in names for n in group.inputs):
                out += group.fields
            else:
                smaller.derived.append(group)
        for name in out:
            smaller.why[name] = "backward binds the live input to something else"
            try:
                saved = register.argument(self.view, name)
                register.anchors(self.view, name)
                smaller.registered.append(saved)
            except CannotPlan:
                continue
        return self.plan(smaller)

    def in_forward(self, inside: Mapping[str, str], away: set[str], gone: set[ast.stmt]) -> list[Edit]:
        """Drop the writes of fields that go, and read their locals."""
        view, text = self.view, self.text
        edits: list[Edit] = []
        for name in sorted(away):
            for use in view.of(name):
                if use.method is view.backward or use.statement in gone:
                    continue
                if use.kind == "load" and use.method is view.forward:
                    edits.append(Replace(text.span(use.node), inside[name]))
                elif use.kind == "store" and FORWARD in use.method.roles and self.drops(name, use):
                    edits.append(Rewrite(text.span(use.statement)))
        return edits

    def unsave(self, choice: Choice) -> list[Edit]:
        """Take registered fields that go out of the save calls."""
        view, text = self.view, self.text
        gone = {name for name in choice.live if not choice.findings[name]}
        edits: list[Edit] = []
        if not gone:
            return edits
        sources = {choice.live[name] for name in gone}
        for method in view.methods.values():
            for call in method.calls.get(view.save, ()) if FORWARD in method.roles else ():
                statement = method.flow.statement(call)
                kept = [a for a in call.args if not self.goes(a, gone, sources, method, statement)]
                if len(kept) == len(call.args):
                    continue
                if not kept and isinstance(statement, ast.Expr) and statement.value is call:
                    edits.append(Rewrite(text.span(statement)))
                else:
                    code = f"{text.source(call.func)}({', '.join(map(text.source, kept))})"
                    edits.append(Replace(text.span(call), code))
        return edits

    def goes(self, node: ast.expr, gone: set[str], sources: set[str], method: MethodView, statement: ast.stmt) -> bool:
        """Whether an argument of a save call is a field that goes, or the live input that it was."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == method.receiver:
            return node.attr in gone
        return live.alias(self.view, node, method, statement) in sources

    def drops(self, name: str, use: Use) -> bool:
        """Whether a write in forward goes as a whole (those of a writer have been rewritten by its own plan)."""
        return name in self.dropped_live or is_none(use.value)

    @property
    def dropped_live(self) -> set[str]:
        """The fields whose every write in forward repeats an input."""
        return {
            name
            for name in self.findings
            if all(
                is_none(u.value) or live.alias(self.view, u.value, u.method, u.statement)
                for u in self.view.of(name, "store")
                if FORWARD in u.method.roles
            )
        }

    def clean_up(self, away: set[str], mains: set[str], gone: set[ast.stmt]) -> list[Edit]:
        """Drop the Nones that constructors and resets give to fields that go, and a constructor left empty."""
        view, text = self.view, self.text
        edits: list[Edit] = []
        for method in view.methods.values():
            if FORWARD in method.roles or BACKWARD in method.roles:
                continue
            dropped = {
                u.statement
                for name in away
                for u in view.of(name, "store")
                if u.method is method and u.plain and is_none(u.value)
            }
            left = [s for s in method.node.body if s not in dropped and not _is_docstring(s)]
            if dropped and not left and method.name == "__init__" and self.plain_constructor(method.node):
                edits.append(Rewrite(text.span(method.node)))
            else:
                edits += [Rewrite(text.span(s)) for s in dropped]
        for statement in view.node.body:
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and statement.target.id in away
            ):
                if statement.value is None or is_none(statement.value):
                    edits.append(Rewrite(text.span(statement)))
        return edits

    def plain_constructor(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Whether nothing is lost with a constructor that does nothing: no parameters, no constructor to shadow."""
        if (
            len(node.args.args) != 1
            or node.args.kwonlyargs
            or node.args.vararg
            or node.args.kwarg
            or node.decorator_list
        ):
            return False
        machine = self.context.analysis.machine
        order = machine.mro(self.view.info)[1:]
        if any(owner.method("__init__") is not None for owner in order):
            return False
        bases = [machine.dotted_base(b, self.view.info) for b in self.view.node.bases]
        return all(base.startswith(contracts.RUNTIME) or not base for base in bases) and not self.view.node.keywords

    def deferred(self) -> bool:
        """Whether a base class in this file is to take part first: one of them is enough."""
        machine = self.context.analysis.machine
        return any(
            owner.module is self.view.info.module and owner.method("forward") is not None
            for owner in machine.mro(self.view.info)[1:]
        ) and not contracts.takes_part(self.view, self.contract)

    def doubt(self, choice: Choice) -> str:
        """Why the plan is unsafe, empty if it is safe."""
        if choice.registered and self.contract.doubt and not contracts.takes_part(self.view, self.contract):
            return self.contract.doubt
        for saved in choice.registered:
            if saved.doubt:
                return f"`{saved.name}`: {saved.doubt}"
        if self.context.report.dialect != "graph-node" and any(s != self.pairs[s] for s in choice.live.values()):
            return "forward and backward name their inputs differently: only their places say which is which"
        return ""

    def description(self, choice: Choice) -> str:
        """One line."""
        parts = []
        if choice.live:
            parts.append(f"read the live input instead of {_listed(choice.live)}")
        derived = [n for group in choice.derived for n in group.fields]
        if derived:
            parts.append(f"derive {_listed(derived)} again in backward")
        if choice.registered:
            parts.append(f"register {_listed([s.name for s in choice.registered])} with the saver")
        return "; ".join(parts)

    def width(self) -> int:
        """How long the lines of the file may be."""
        return min(120, max(88, *(len(line.rstrip("\r\n")) for line in self.text.lines)))


def _listed(names: Sequence[str] | Mapping[str, str]) -> str:
    every = [f"`{name}`" for name in names]
    return ", ".join(every) if len(every) < 5 else f"{', '.join(every[:3])} and {len(every) - 3} more"


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
