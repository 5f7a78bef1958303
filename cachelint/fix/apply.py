"""One file: look, plan, rewrite, lint again. Nothing here reads or writes files.

The new text is parsed and linted before anybody sees it: the findings must be gone and no other may have come. What
fails is taken out, plan by plan, and refused with what went wrong.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cachelint import suppress
from cachelint.checks import FileContext
from cachelint.classify import relative
from cachelint.engine import examine
from cachelint.fix.edits import Edit, Plan, Refusal
from cachelint.fix.remedies import plan_file
from cachelint.fix.unset import left_unset
from cachelint.index.module import ModuleInfo
from cachelint.index.project import Project
from cachelint.model import Applicability, Finding
from cachelint.select import UNUSED_SUPPRESSION, off_by_default
from cachelint.settings import Settings
from cachelint.source import Source

ROUNDS = 6
"""How often a file is planned anew: plans that touch the same text are carried out one after the other."""

LIFETIMES = frozenset(("CL301", "CL302"))

Wanted = Callable[[Finding], bool]
Ask = Callable[[Plan, str, str], bool]
"""Asked before a plan is carried out, with the text before and after it."""

May = Callable[[str], bool]
"""Whether another file, by its path, may be changed too."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """What became of one file. ``skipped`` are unsafe plans that nobody asked for, and those that a person declined."""

    text: str
    applied: tuple[Plan, ...] = ()
    refused: tuple[Refusal, ...] = ()
    skipped: tuple[Plan, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """The new texts of other files, on which the new text of this one relies."""
    lent: tuple[Edit, ...] = ()
    """The changes that were made for the sake of another file."""


@dataclass(frozen=True, slots=True)
class _Look:
    """The interpretation of one text of a file."""

    file: FileContext
    findings: tuple[Finding, ...]
    every: tuple[Finding, ...]
    """Those that a comment suppresses too."""


class Quit(Exception):
    """The person who is asked wants no more changes."""


def look(source: Source, text: str, project: Project, settings: Settings) -> _Look:
    """Interpret ``text`` as the content of the file ``source``. Raises SyntaxError."""
    path = source.abspath
    project.replace(ModuleInfo(path, text, project.dotted(path)))
    module = project.module(path)
    assert module is not None
    module.check_syntax()
    file, findings = examine(module, relative(path), project, settings)
    findings = [dataclasses.replace(finding, path=source.path) for finding in findings]
    kept = suppress.apply(findings, dataclasses.replace(source, text=text), unused=False).kept
    return _Look(file, kept, tuple(findings))


def fix_text(
    source: Source,
    project: Project,
    settings: Settings,
    *,
    wanted: Wanted = lambda finding: True,
    unsafe: bool = False,
    ask: Ask | None = None,
    unused: Sequence[Finding] = (),
    may: May = lambda path: False,
) -> Fixed:
    """Fix one file's text. ``wanted`` says which findings are asked for, ``ask`` is asked before each plan, ``unused``
    are the reports of suppressions that do nothing. ``may`` says which other files may be changed: their new texts are
    part of the outcome, and what ``project`` holds from then on.

    Raises SyntaxError when the text as it is does not parse. A :class:`Quit` from ``ask`` ends with what was accepted.
    """
    state = _State(source, project, settings, wanted, unsafe, ask, may)
    try:
        for _ in range(ROUNDS):
            if not state.round():
                break
        state.drop(unused)
    except Quit:
        pass
    return state.result()


@dataclass
class _State:
    source: Source
    project: Project
    settings: Settings
    wanted: Wanted
    unsafe: bool
    ask: Ask | None
    may: May
    text: str = ""
    elsewhere: dict[str, str] = field(default_factory=dict)
    applied: list[Plan] = field(default_factory=list)
    barred: dict[tuple[str, str | None, str | None], Refusal] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    skipped: list[Plan] = field(default_factory=list)
    accepted: set[frozenset[tuple[str, str | None, str | None]]] = field(default_factory=set)
    now: _Look | None = None
    dropped: list[Plan] = field(default_factory=list)
    kept: list[Plan] = field(default_factory=list)
    """The suppressions that do nothing: those taken out, and those that a person wants to keep."""

    def __post_init__(self) -> None:
        self.text = self.source.text

    def round(self) -> bool:
        """Plan and carry out what fits together; whether another round may do more."""
        seen = self.now or look(self.source, self.text, self.project, self.settings)
        self.now = seen
        asked = [f for f in seen.findings if self.wanted(f)]
        self.refused = [self.barred[_key(f)] for f in asked if _key(f) in self.barred]
        open_ = [finding for finding in asked if _key(finding) not in self.barred]
        outcomes = plan_file(seen.file, open_) if open_ else []
        plans: list[Plan] = []
        self.skipped = [plan for plan in self.skipped if self.declined(plan)]
        for outcome in outcomes:
            if isinstance(outcome, Refusal):
                self.refused.append(outcome)
            elif outcome.applicability is Applicability.UNSAFE and not self.unsafe:
                self.skipped.append(outcome)
            elif closed := [other.path for other in outcome.elsewhere if not self.may(other.path)]:
                why = f"{relative(closed[0])} would have to change with it, and is not among the files to fix"
                self.refused += [Refusal(finding, why, "in another file") for finding in outcome.findings]
            elif any(outcome.conflicts(other) for other in plans) or self.declined(outcome):
                continue
            elif self.agreed(outcome):
                plans.append(outcome)
            else:
                self.skipped.append(outcome)
        barred = len(self.barred)
        done = self.carry_out(plans, seen)
        self.applied += done
        return bool(done) or len(self.barred) > barred  # what met a plan that did not hold has its turn

    def drop(self, unused: Sequence[Finding]) -> None:
        """Take comments out that suppress nothing, the last one first, so that the places of the others hold.

        The fixes may have moved them: each report is matched with one that says the same of the text as it is now. One
        without a match went away with its line.
        """
        if not unused:
            return
        seen = self.now or look(self.source, self.text, self.project, self.settings)
        source = dataclasses.replace(self.source, text=self.text)
        found = [f for f in suppress.apply(seen.every, source).kept if f.code == UNUSED_SUPPRESSION]
        pairs: list[tuple[Finding, Finding | None]] = []
        for finding in unused:
            own = next((f for f in found if f.message == finding.message), None)
            if own is not None:
                found.remove(own)
            pairs.append((finding, own))
        for finding, own in sorted(pairs, key=lambda pair: _place(pair[1]), reverse=True):
            plan = Plan((finding,), (), Applicability.SAFE, finding.fix.description if finding.fix else "")
            text = self.text
            if own is not None:
                text = suppress.drop_unused(dataclasses.replace(source, text=text), [own])
            if own is None or self.ask is None or self.ask(plan, self.text, text):
                self.text = text
                self.dropped.append(plan)
            else:
                self.kept.append(plan)

    def declined(self, plan: Plan) -> bool:
        return self.ask is not None and any(
            set(map(_key, p.findings)) == set(map(_key, plan.findings)) for p in self.skipped
        )

    def agreed(self, plan: Plan) -> bool:
        if self.ask is None:
            return True
        key = frozenset(map(_key, plan.findings))
        if key not in self.accepted:
            from cachelint.fix.rewrite import CannotRewrite, rewrite

            try:
                after = rewrite(self.text, plan.edits)
            except (CannotRewrite, RecursionError):
                return True  # what is wrong with it is found out, and told, when it is carried out
            if not self.ask(plan, self.text, after):
                return False
        self.accepted.add(key)
        return True

    def carry_out(self, plans: Sequence[Plan], seen: _Look) -> list[Plan]:
        """The plans that hold, all together if they do, else one by one."""
        if not plans:
            return []
        why = self.attempt(plans, seen)
        if why is None:
            return list(plans)
        if len(plans) == 1:
            self.bar(plans[0], why)
            return []
        half = len(plans) // 2
        done = self.carry_out(plans[:half], seen)
        if done:
            return done  # the places of the others have moved: they are planned anew
        return self.carry_out(plans[half:], seen)

    def attempt(self, plans: Sequence[Plan], seen: _Look) -> str | None:
        """Carry out plans; None when the result holds, else why not, and nothing is changed."""
        from cachelint.fix.rewrite import CannotRewrite, rewrite

        mended = [f for plan in plans for f in plan.findings]
        before = {other.path: self.text_of(other.path) for plan in plans for other in plan.elsewhere}
        try:
            others = {
                other.path: rewrite(before[other.path], other.edits) for plan in plans for other in plan.elsewhere
            }
            for path, new in others.items():
                self.put(path, new)
            edits = [edit for plan in plans for edit in plan.edits]
            text = rewrite(self.text, edits, [claim for plan in plans for claim in plan.claims])
            after = look(self.source, text, self.project, self.settings)
            text, after = self.released(text, seen, after)
        except CannotRewrite as error:
            self.restore(before)
            return str(error)
        except SyntaxError as error:
            self.restore(before)
            return f"the fixed text would not parse: {error.msg}"
        except RecursionError:
            self.restore(before)
            return "it is nested too deeply to be rewritten"
        # What is left unset says more than the finding that it gives rise to.
        why = left_unset(seen.file, after.file) or _worse(seen.findings, after.findings, mended)
        if why:
            self.restore(before)
            return why
        self.text, self.now = text, after
        self.elsewhere |= others
        return None

    def released(self, text: str, seen: _Look, after: _Look) -> tuple[str, _Look]:
        """The text with ``del`` for locals that outlive their use since ctx does not own their tensors any more."""
        from cachelint.fix.rewrite import rewrite

        for _ in range(ROUNDS):
            plans: list[Plan] = []
            for plan in plan_file(after.file, _fresh(seen.findings, after.findings, LIFETIMES)):
                if isinstance(plan, Plan) and plan.applicability is Applicability.SAFE:
                    if not any(plan.conflicts(other) for other in plans):
                        plans.append(plan)
            if not plans:
                break
            text = rewrite(text, [edit for plan in plans for edit in plan.edits])
            after = look(self.source, text, self.project, self.settings)
        return text, after

    def text_of(self, path: str) -> str:
        module = self.project.module(path)
        assert module is not None
        return module.text

    def put(self, path: str, text: str) -> None:
        """Have the project see another text of a file."""
        self.project.replace(ModuleInfo(path, text, self.project.dotted(path)))

    def restore(self, others: Mapping[str, str]) -> None:
        for path, text in others.items():
            self.put(path, text)
        self.put(self.source.abspath, self.text)

    def bar(self, plan: Plan, why: str) -> None:
        for finding in plan.findings:
            refusal = Refusal(finding, why, "not clean after the fix")
            self.barred[_key(finding)] = refusal
            self.refused.append(refusal)

    def result(self) -> Fixed:
        return Fixed(
            self.text,
            (*self.dropped, *self.applied),
            tuple(self.refused),
            (*self.kept, *self.skipped),
            self.elsewhere,
        )


def _place(finding: Finding | None) -> tuple[int, int]:
    return (finding.line, finding.column) if finding is not None else (0, 0)


def _key(finding: Finding) -> tuple[str, str | None, str | None]:
    return (finding.code, finding.type, finding.field or ",".join(finding.names) or finding.message)


def _worse(before: Sequence[Finding], after: Sequence[Finding], mended: Sequence[Finding]) -> str | None:
    """Why the new findings are no good: one that should be gone is there, or one that was not there came."""
    old = Counter(map(_key, before))
    new = Counter(map(_key, after))
    for finding in mended:
        key = _key(finding)
        if new[key] >= old[key]:
            return f"{finding.code} would still be reported for `{finding.field or finding.type}` after the fix"
    quiet = off_by_default()
    for finding in _fresh(before, after):
        if finding.code not in quiet:
            return f"the fixed text would have a new finding: {finding.code} in `{finding.type}`"
    return None


def _fresh(before: Sequence[Finding], after: Sequence[Finding], codes: frozenset[str] | None = None) -> list[Finding]:
    """The findings of rules (of all, without ``codes``) that a type has more of than before."""
    old = Counter((f.code, f.type) for f in before)
    new = Counter((f.code, f.type) for f in after)
    return [f for f in after if new[f.code, f.type] > old[f.code, f.type] and (codes is None or f.code in codes)]
