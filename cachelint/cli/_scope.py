"""Options that several commands share: which files, which configuration, how to run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import click

from cachelint.cli._console import CHOICES

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Scope:
    """What the shared options said. ``overrides`` has the keys of the configuration file that the options set."""

    paths: tuple[str, ...]
    config: str | None
    isolated: bool
    exclude: tuple[str, ...]
    extend_exclude: tuple[str, ...]
    gitignore: bool
    force_exclude: bool
    jobs: int
    cache: bool
    cache_dir: str | None
    color: str
    quiet: bool

    def overrides(self) -> dict[str, Any]:
        """Keys of ``[tool.cachelint]`` that the command line sets."""
        found: dict[str, Any] = {}
        if self.exclude:
            found["exclude"] = self.exclude
        if self.extend_exclude:
            found["extend-exclude"] = self.extend_exclude
        if not self.gitignore:
            found["respect-gitignore"] = False
        if self.force_exclude:
            found["force-exclude"] = True
        if self.cache_dir:
            found["cache-dir"] = self.cache_dir
        return found


def _split(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Comma-separated words of an option that may be given several times; blanks around a word don't count."""
    return tuple(word.strip() for group in value for word in group.split(",") if word.strip())


def words(*names: str, metavar: str, help: str) -> Callable[[F], F]:
    """An option that takes comma-separated words, several times."""
    return click.option(*names, multiple=True, callback=_split, metavar=metavar, help=help)


PATHS = click.argument("paths", nargs=-1, metavar="[PATH]...")
_OPTIONS = (
    click.option("--config", metavar="FILE", help="Take the configuration from FILE, whatever lies nearer."),
    click.option("--isolated", is_flag=True, help="Ignore all configuration files."),
    words("--exclude", metavar="PATTERNS", help="Paths to skip, instead of the built-in ones."),
    words("--extend-exclude", metavar="PATTERNS", help="Paths to skip, on top of them."),
    click.option(
        "--respect-gitignore/--no-respect-gitignore", "gitignore", default=True, help="Skip what git ignores (default)."
    ),
    click.option(
        "--force-exclude", is_flag=True, help="Skip excluded files also when they are named (hooks name them)."
    ),
    click.option(
        "-j", "--jobs", type=click.IntRange(min=0), default=0, metavar="N", help="Processes; 0 is one a core."
    ),
    click.option("--cache/--no-cache", "cache", default=True, help="Use the cache (default)."),
    click.option("--cache-dir", metavar="DIR", help="Where the cache lives."),
    click.option("--color", type=click.Choice(CHOICES), default="auto", help="When to colour."),
    click.option("-q", "--quiet", is_flag=True, help="No summary and no progress on stderr."),
)


def scoped(function: Callable[..., int]) -> Callable[..., int]:
    """Add the shared options; the function gets them as ``scope``."""

    @functools.wraps(function)
    def command(**values: Any) -> int:
        taken = {field.name: values.pop(field.name) for field in fields(Scope) if field.name in values}
        taken.setdefault("paths", ())
        return function(scope=Scope(**taken), **values)

    result: Callable[..., int] = command
    for option in reversed(_OPTIONS):
        result = option(result)
    return result


RULES = (
    words("--select", metavar="CODES", help="Rules to report: ALL, prefixes (CL, CL1), codes or names."),
    words("--ignore", metavar="CODES", help="Rules not to report."),
    words("--extend-select", metavar="CODES", help="Rules to report on top of the configured ones."),
)


def rules(function: F) -> F:
    """Add --select, --ignore and --extend-select."""
    for option in reversed(RULES):
        function = option(function)
    return function


def rule_overrides(select: tuple[str, ...], ignore: tuple[str, ...], extend_select: tuple[str, ...]) -> dict[str, Any]:
    """Keys of ``[tool.cachelint]`` that the rule options set."""
    pairs = (("select", select), ("ignore", ignore), ("extend-select", extend_select))
    return {key: codes for key, codes in pairs if codes}
