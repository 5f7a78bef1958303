"""``cachelint rule``: the catalogue."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from cachelint.cli._console import CHOICES, is_terminal, style, write
from cachelint.cli._status import CLEAN, UsageProblem

if TYPE_CHECKING:
    from cachelint.catalogue import Rule
    from cachelint.report import Style


@click.command("rule")
@click.argument("query", metavar="[CODE]", required=False)
@click.option("--all", "every", is_flag=True, help="Show the pages of all rules.")
@click.option(
    "--format", "form", type=click.Choice(["text", "markdown", "json"]), default="text", help="Output format."
)
@click.option("--color", type=click.Choice(CHOICES), default="auto", help="When to colour.")
def command(query: str | None, every: bool, form: str, color: str) -> int:
    """Explain a rule by its code or name; list the rules without one."""
    from cachelint import catalogue

    if query and every:
        raise UsageProblem("give a rule or --all, not both")
    look = style(colour=color)
    try:
        if query:
            write(_pages((catalogue.load(query),), form, look))
        elif every:
            write(_pages(catalogue.load_all(), form, look))
        else:
            write(_listing(catalogue.names(), catalogue.load_all(), form))
    except catalogue.CatalogueError as error:
        raise UsageProblem(error.message if query else str(error)) from error
    return CLEAN


def _pages(rules: tuple[Rule, ...], form: str, look: Style) -> Iterator[str]:
    from cachelint.report.rulepage import markdown, plain, shape

    if form == "json":
        shapes: Any = [shape(rule) for rule in rules]
        yield json.dumps(shapes[0] if len(rules) == 1 else shapes, indent=2, ensure_ascii=False) + "\n"
        return
    for position, rule in enumerate(rules):
        if position:
            yield "\n"
        if form == "markdown":
            yield markdown(rule)
        elif look.colour and is_terminal(sys.stdout):
            yield _drawn(markdown(rule), look)
        else:
            yield plain(rule)


def _drawn(text: str, look: Style) -> str:
    """Markdown as a terminal shows it."""
    import io

    from rich.console import Console
    from rich.markdown import Markdown

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", width=min(look.width, 100))
    console.print(Markdown(text, code_theme="ansi_dark"))
    return out.getvalue()


def _listing(names: dict[str, str], rules: tuple[Rule, ...], form: str) -> Iterator[str]:
    from cachelint.report.markdown import cell, table
    from cachelint.report.rulepage import shape

    if form == "json":
        brief = [
            {key: shape(rule)[key] for key in ("code", "name", "summary", "severity", "fixable", "default")}
            for rule in rules
        ]
        yield json.dumps(brief, indent=2, ensure_ascii=False) + "\n"
    elif form == "markdown":
        yield from table(
            ("Code", "Name", "What it finds", "Fix"), [(r.code, r.name, cell(r.summary), r.fixable) for r in rules]
        )
    else:
        widest = max(map(len, names.values()), default=0)
        for rule in rules:
            yield f"{rule.code}  {rule.name:<{widest}}  {rule.summary}\n"
