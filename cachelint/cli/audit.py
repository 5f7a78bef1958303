"""``cachelint audit``: every cached field with its class."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from cachelint.cli._console import is_terminal, style, write
from cachelint.cli._scope import PATHS, Scope, scoped
from cachelint.cli._status import UsageProblem, status

if TYPE_CHECKING:
    from cachelint.cli._session import Session
    from cachelint.report import Style
    from cachelint.runner import Report

_FORMATS = ("rich", "text", "markdown", "html", "json", "csv")


@click.command("audit")
@PATHS
@click.option("--table", is_flag=True, help="The Markdown table; the same as --format markdown.")
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), help="Output format: rich on a terminal, text elsewhere."
)
@click.option("-o", "--output-file", metavar="FILE", help="Write the report to FILE.")
@click.option("--all", "show_all", is_flag=True, help="List types that cache nothing, too.")
@click.option("--since", metavar="REV", help="Two sections: what was migrated since a git revision, and the follow-up.")
@click.option("--fail-on-findings", is_flag=True, help="Exit 1 when a field needs work.")
@scoped
def command(
    scope: Scope,
    table: bool,
    form: str | None,
    output_file: str | None,
    show_all: bool,
    since: str | None,
    fail_on_findings: bool,
) -> int:
    """List every field that forward leaves behind for backward: SAFE, RECOMPUTE or SAVE, and what to do."""
    from cachelint.cli._session import Session
    from cachelint.report import renderer

    if table:
        if form not in (None, "markdown"):
            raise UsageProblem(f"--table is --format markdown, not {form}")
        form = "markdown"
    to_file = output_file is not None
    form = form or ("rich" if not to_file and is_terminal(sys.stdout) else "text")
    look = style(colour=scope.color, to_file=to_file, show_all=show_all, title=f"cachelint audit of {_subject(scope)}")
    session = Session(scope)
    report = session.run(scope.paths)
    if since is None:
        write(renderer("audit", form)(report, look), output_file)
    else:
        write(_since(session, scope, since, form, look, report), output_file)
    session.complain(report)
    flagged = [field for kind in report.types for field in kind.fields if field.flagged] if fail_on_findings else []
    return status(flagged, report.errors)


def _subject(scope: Scope) -> str:
    return ", ".join(scope.paths) if scope.paths else os.path.basename(os.getcwd())


def _since(session: Session, scope: Scope, rev: str, form: str, look: Style, report: Report) -> Iterator[str]:
    """The report of a migration: today's types against those of a revision."""
    from cachelint.cli import _since as revision
    from cachelint.report import migration, sections

    if form not in sections.FORMATS:
        raise UsageProblem(f"--since has no {form} format; one of {', '.join(sections.FORMATS)}")
    with revision.tree(rev) as folder:
        before = session.run_in(folder, scope.paths)
    return sections.render(form, report, migration.compare(rev, before.types, report.types), look)
