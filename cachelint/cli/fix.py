"""``cachelint fix``: the codemods. Thin: :mod:`cachelint.fix` does the work."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cachelint.cli._console import tell, write, write_bytes
from cachelint.cli._scope import PATHS, Scope, rule_overrides, rules, scoped
from cachelint.cli._status import CLEAN, FINDINGS, UsageProblem, status

if TYPE_CHECKING:
    from cachelint.cli._session import Session
    from cachelint.fix.api import Summary
    from cachelint.fix.edits import Plan
    from cachelint.runner import Report


@click.command("fix")
@PATHS
@rules
@click.option("--diff", is_flag=True, help="Show the changes as a diff and make none.")
@click.option("--check", is_flag=True, help="Change nothing; exit 1 when there is something to fix.")
@click.option("--unsafe", "--unsafe-fixes", "unsafe", is_flag=True, help="Unsafe fixes too.")
@click.option("--interactive", "-i", is_flag=True, help="Ask about each change.")
@click.option("--stdin-filename", metavar="NAME", help="The name of what `-` reads from standard input.")
@scoped
def command(
    scope: Scope,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    extend_select: tuple[str, ...],
    diff: bool,
    check: bool,
    unsafe: bool,
    interactive: bool,
    stdin_filename: str | None,
) -> int:
    """Rewrite code to the save-for-backward contract, where that provably keeps its meaning.

    `-` reads standard input and writes the fixed text to standard output.
    """
    from cachelint.cli._session import Session

    if interactive and (diff or check):
        raise UsageProblem("--interactive asks before it changes files; --diff and --check change none")
    if interactive and "-" in scope.paths:
        raise UsageProblem("--interactive asks on standard input; give files")
    session = Session(scope, rule_overrides(select, ignore, extend_select), stdin_filename=stdin_filename)
    return apply(session, scope, unsafe=unsafe, diff=diff, check=check, interactive=interactive)


def apply(
    session: Session,
    scope: Scope,
    *,
    unsafe: bool = False,
    diff: bool = False,
    check: bool = False,
    interactive: bool = False,
    brief: bool = False,
) -> int:
    """Fix the findings of the scope's paths; the exit status: 0 when nothing is left to fix, 1 when something is.

    With ``brief`` (``check --fix``) the list of what was refused is left to the report that follows.
    """
    report = session.run(scope.paths)
    session.complain(report)
    ask = _Dialogue(report).ask if interactive else None
    summary = session.fix(report, unsafe=unsafe, write=not (diff or check), ask=ask)
    for error in summary.errors:
        tell(f"{error.path}:{error.line}: {error.message}")
    if diff:
        write(line for one in summary.changed for line in one.diff())
    elif "-" in scope.paths and not check:
        write_bytes(session.standard_output(summary))
    elif not brief:
        write(_lines(summary, "would fix" if check else "fixed"))
    if not scope.quiet:
        tell(_total(summary, "would fix" if diff or check else "fixed", unsafe))
    errors = [*report.errors, *summary.errors]
    if diff or check:
        return status(summary.changed, errors)
    left = len(summary.refused) + sum(len(plan.findings) for plan in summary.skipped)
    return status((), errors) if errors else FINDINGS if left else CLEAN


def _lines(summary: Summary, done: str) -> Sequence[str]:
    """A line for each finding: what was done, or why nothing was."""
    rows: list[tuple[str, int, str]] = []
    for one in summary.files:
        if one.error is not None:
            continue
        for plan in one.fixed.applied:
            kind = "" if plan.applicability == "safe" else " (unsafe)"
            rows += [
                (f.path, f.line, f"{f.code} {_name(f.field)}{done}{kind}: {_lower(plan.description)}")
                for f in plan.findings
            ]
        for plan in one.fixed.skipped:
            why = f": the fix is unsafe{f', since {plan.notes[0]}' if plan.notes else ''}"
            left = "left as it is" if plan.applicability == "safe" else f"left{why}"
            rows += [(f.path, f.line, f"{f.code} {_name(f.field)}{left}") for f in plan.findings]
        for refusal in one.fixed.refused:
            f = refusal.finding
            rows.append((f.path, f.line, f"{f.code} {_name(f.field)}refused: {refusal.reason}"))
    return [f"{path}:{line}: {text}\n" for path, line, text in sorted(rows)]


def _name(field: str | None) -> str:
    return f"`{field}` " if field else ""


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _total(summary: Summary, done: str, unsafe: bool) -> str:
    """``fixed 12 findings in 3 files; 3 refused (2 ctx escapes, 1 workspace); 1 more with --unsafe``."""
    from cachelint.report.text import plural

    fixed = sum(len(plan.findings) for plan in summary.applied)
    text = f"{done} {plural(fixed, 'finding')} in {plural(len(summary.changed), 'file')}"
    if summary.refused:
        kinds = Counter(refusal.kind for refusal in summary.refused)
        reasons = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items(), key=lambda k: (-k[1], k[0])))
        text += f"; {len(summary.refused)} refused ({reasons})"
    left = sum(len(plan.findings) for plan in summary.skipped if plan.applicability == "unsafe")
    return f"{text}; {left} more with --unsafe" if left and not unsafe else text


class _Dialogue:
    """Asks about one change after the other on the terminal."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def ask(self, plan: Plan, before: str, after: str) -> bool:
        """Show a change and ask: accept, skip, quit, or show the evidence and ask again."""
        from cachelint.fix.api import unified
        from cachelint.fix.apply import Quit

        first = plan.findings[0]
        sys.stdout.writelines(unified(first.path, before, after))
        where = ", ".join(f"{f.code} {_name(f.field or f.type)}".strip() for f in plan.findings)
        tell(f"{first.path}:{first.line}: {where}: {plan.description} ({plan.applicability.value})")
        for note in plan.notes:
            tell(f"  unsafe: {note}")
        while True:
            tell("[a]ccept, [s]kip, [e]vidence, [q]uit?")
            answer = sys.stdin.readline().strip().lower()[:1]
            if answer in ("a", "y"):
                return True
            if answer in ("s", "n"):
                return False
            if answer == "q" or not answer:
                raise Quit
            if answer == "e":
                self.evidence(plan)

    def evidence(self, plan: Plan) -> None:
        """The chain behind each verdict."""
        fields = {(t.path, t.type, f.field): f for t in self.report.types for f in t.fields}
        for finding in plan.findings:
            known = fields.get((finding.path, finding.type or "", finding.field or ""))
            tell(f"  {finding.code} {finding.message}")
            for link in known.evidence if known else ():
                tell(f"    {link.path}:{link.line}: {link.text}")
