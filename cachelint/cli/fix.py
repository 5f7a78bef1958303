"""``cachelint fix``: the codemods. Thin: :mod:`cachelint.fix` does the work."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import click

from cachelint.cli._scope import PATHS, Scope, rule_overrides, rules, scoped
from cachelint.cli._status import UsageProblem

if TYPE_CHECKING:
    from cachelint.cli._session import Session


@click.command("fix")
@PATHS
@rules
@click.option("--diff", is_flag=True, help="Show the changes as a diff and make none.")
@click.option("--check", is_flag=True, help="Change nothing; exit 1 when there is something to fix.")
@click.option("--unsafe", "--unsafe-fixes", "unsafe", is_flag=True, help="Unsafe fixes too.")
@click.option("--interactive", "-i", is_flag=True, help="Ask about each change.")
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
) -> int:
    """Rewrite code to the save-for-backward contract, where that provably keeps its meaning."""
    from cachelint.cli._session import Session

    if interactive and (diff or check):
        raise UsageProblem("--interactive asks before it changes files; --diff and --check change none")
    session = Session(scope, rule_overrides(select, ignore, extend_select))
    return apply(session, scope, unsafe=unsafe, diff=diff, check=check, interactive=interactive)


def apply(
    session: Session,
    scope: Scope,
    *,
    unsafe: bool = False,
    diff: bool = False,
    check: bool = False,
    interactive: bool = False,
) -> int:
    """Run the fixers over the scope's paths; the exit status. Raises UsageProblem where there are no fixers."""
    if importlib.util.find_spec("cachelint.fix.api") is None:
        raise UsageProblem("this version has no fixes yet")
    raise NotImplementedError
