"""``cachelint server``: the language server, over standard input and output."""

from __future__ import annotations

import importlib.util

import click

from cachelint.cli._scope import rule_overrides, rules
from cachelint.cli._status import CLEAN, UsageProblem


@click.command("server")
@rules
@click.option("--cache/--no-cache", "cache", default=True, help="Use the cache (default).")
@click.option("--tcp", type=click.IntRange(1, 65535), metavar="PORT", help="Listen on a port of this machine instead.")
def command(
    select: tuple[str, ...], ignore: tuple[str, ...], extend_select: tuple[str, ...], cache: bool, tcp: int | None
) -> int:
    """Serve an editor by the Language Server Protocol (extra: lsp)."""
    if importlib.util.find_spec("pygls") is None:
        raise UsageProblem("the language server needs pygls: pip install 'torch-cachelint[lsp]'")
    from cachelint.server import build

    server = build(rule_overrides(select, ignore, extend_select), cache)
    if tcp is None:
        server.start_io()
    else:
        server.start_tcp("127.0.0.1", tcp)
    return CLEAN
