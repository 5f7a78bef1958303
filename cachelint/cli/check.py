"""``cachelint check``: the findings."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from cachelint.cli._console import is_terminal, style, tell, write
from cachelint.cli._scope import PATHS, Scope, rule_overrides, rules, scoped
from cachelint.cli._status import CLEAN, UsageProblem, status

if TYPE_CHECKING:
    from cachelint.cli._session import Session
    from cachelint.model import Finding
    from cachelint.runner import Report

_FORMATS = (
    "full",
    "concise",
    "grouped",
    "json",
    "json-lines",
    "github",
    "gitlab",
    "junit",
    "sarif",
    "markdown",
)
_FOR_PEOPLE = ("full", "concise", "grouped")
_POLL_SECONDS = 0.5


@click.command("check")
@PATHS
@rules
@click.option(
    "--output-format",
    "form",
    type=click.Choice(_FORMATS),
    metavar="FORMAT",
    envvar="CACHELINT_OUTPUT_FORMAT",
    help=f"One of {', '.join(_FORMATS)}; full without configuration.",
)
@click.option("-o", "--output-file", metavar="FILE", help="Write the report to FILE.")
@click.option("--statistics", is_flag=True, help="Count the findings by rule instead of listing them.")
@click.option("--fix", is_flag=True, help="Apply safe fixes, then report what is left.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: unsafe fixes too.")
@click.option("--diff", is_flag=True, help="Show what --fix would change, and change nothing.")
@click.option("--add-noqa", is_flag=True, help="Append `# noqa: CODE` to each line with a finding.")
@click.option("--baseline", metavar="FILE", help="Report only what FILE doesn't have.")
@click.option("--write-baseline", metavar="FILE", help="Write today's findings to FILE and report none.")
@click.option("--exit-zero", is_flag=True, help="Exit 0 in spite of findings.")
@click.option("--watch", is_flag=True, help="Run again whenever a file changes.")
@click.option("--stdin-filename", metavar="NAME", help="The name of what `-` reads from standard input.")
@scoped
def command(
    scope: Scope,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    extend_select: tuple[str, ...],
    form: str | None,
    output_file: str | None,
    statistics: bool,
    fix: bool,
    unsafe_fixes: bool,
    diff: bool,
    add_noqa: bool,
    baseline: str | None,
    write_baseline: str | None,
    exit_zero: bool,
    watch: bool,
    stdin_filename: str | None,
) -> int:
    """Report tensors that forward leaves behind for backward without the contract, and misuse of the contract."""
    from cachelint.cli._session import Session

    overrides = rule_overrides(select, ignore, extend_select)
    session = Session(scope, overrides, baseline=baseline, stdin_filename=stdin_filename)
    if sum((fix, diff, add_noqa, write_baseline is not None)) > 1:
        raise UsageProblem("--fix, --diff, --add-noqa and --write-baseline exclude each other")
    if unsafe_fixes and not (fix or diff):
        raise UsageProblem("--unsafe-fixes needs --fix or --diff")
    if watch and "-" in scope.paths:
        raise UsageProblem("--watch needs files; standard input is read once")
    if fix or diff:
        from cachelint.cli.fix import apply

        fixed = apply(session, scope, unsafe=unsafe_fixes, diff=diff, brief=True)
        if diff:
            return fixed
    if add_noqa:
        return session.add_noqa(scope.paths)
    if write_baseline is not None:
        return session.write_baseline(scope.paths, write_baseline)

    def once() -> int:
        report = session.run(scope.paths)
        _show(session, scope, report, form, output_file, statistics=statistics, summary=not (fix and scope.quiet))
        result = status(report.findings, report.errors)
        return CLEAN if exit_zero and not report.errors else result

    return _watch(session, scope, once) if watch else once()


def _show(
    session: Session,
    scope: Scope,
    report: Report,
    form: str | None,
    output_file: str | None,
    *,
    statistics: bool,
    summary: bool,
) -> None:
    from cachelint.report import renderer

    form = form or session.output_format() or "full"
    look = style(colour=scope.color, to_file=output_file is not None)
    if statistics:
        write(_statistics(report.findings, form), output_file)
    else:
        write(renderer("check", form)(report, look), output_file)
    session.complain(report)
    if summary and not scope.quiet and (form in _FOR_PEOPLE or is_terminal(sys.stderr)):
        tell(_summary(report))


def _summary(report: Report) -> str:
    """Such as: 3 findings in 2 of 9 files; 1 fixable with --fix."""
    from cachelint.report.text import plural

    unread = f"; {plural(len(report.errors), 'problem')} reading files" if report.errors else ""
    if not report.findings:
        return f"no findings in {plural(len(report.files), 'file')}{unread}"
    places = len({finding.path for finding in report.findings})
    text = f"{plural(len(report.findings), 'finding')} in {places} of {plural(len(report.files), 'file')}"
    fixes = Counter(finding.fix.applicability.value for finding in report.findings if finding.fix)
    offers = [
        f"{fixes[kind]} fixable with `{how}`"
        for kind, how in (("safe", "--fix"), ("unsafe", "--fix --unsafe-fixes"))
        if fixes[kind]
    ]
    return "; ".join((text, *offers)) + unread


def _statistics(findings: Sequence[Finding], form: str) -> Iterator[str]:
    """One line a rule, the most frequent first; ``[*]`` where each finding has a safe fix."""
    counts = Counter(finding.code for finding in findings)
    names = {finding.code: finding.name for finding in findings}
    safe = Counter(f.code for f in findings if f.fix and f.fix.applicability == "safe")
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if form in ("json", "json-lines"):
        rows = [{"code": code, "name": names[code], "count": n, "safe_fixes": safe[code]} for code, n in ordered]
        yield json.dumps(rows, indent=2) + "\n"
        return
    widest = len(str(max(counts.values(), default=0)))
    for code, n in ordered:
        mark = "[*]" if safe[code] == n else "[-]" if safe[code] else "[ ]"
        yield f"{n:>{widest}}  {code}  {mark} {names[code]}\n"


def _watch(session: Session, scope: Scope, once: Callable[[], int]) -> int:
    """Run, wait for a change, run again, until interrupted."""
    try:
        while True:
            before = session.fingerprint(scope.paths)
            if is_terminal(sys.stdout):
                sys.stdout.write("\x1b[2J\x1b[H")
            once()
            if not scope.quiet:
                tell("watching; Ctrl-C ends")
            while session.fingerprint(scope.paths) == before:
                time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        return CLEAN
