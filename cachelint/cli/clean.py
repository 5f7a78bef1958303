"""``cachelint clean``: remove the cache."""

from __future__ import annotations

import click

from cachelint.cli._console import tell
from cachelint.cli._scope import Scope, scoped
from cachelint.cli._status import CLEAN


@click.command("clean")
@scoped
def command(scope: Scope) -> int:
    """Remove the cache of the project in the working directory."""
    from cachelint.cli._session import Session

    removed = Session(scope).clean()
    if not scope.quiet:
        tell(f"removed the cache in {removed}" if removed else "there is no cache here")
    return CLEAN
