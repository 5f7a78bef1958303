"""Reports: one module per output format, all fed by one typed result.

``report/check/`` holds the formats of ``cachelint check``, ``report/audit/`` those of ``cachelint audit``. A format's
name is its module's, with a hyphen for an underscore. A module is a format when it has
``render(report, style) -> Iterator[str]``, which yields pieces of text that end where the format wants them to;
modules whose name starts with an underscore are shared code.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from cachelint.model import FileError, Finding, TypeReport

Kind = Literal["check", "audit"]


class Report(Protocol):
    """What a renderer needs of a finished run; :class:`cachelint.runner.Report` is one."""

    @property
    def files(self) -> Sequence[str]:
        """The files that were examined."""

    @property
    def types(self) -> Sequence[TypeReport]:
        """Every class or pair of functions with a forward and a backward."""

    @property
    def types_with_findings(self) -> Sequence[TypeReport]:
        """Those of the files that have findings."""

    @property
    def findings(self) -> Sequence[Finding]:
        """What the rules report, suppressions and baseline already taken off."""

    @property
    def errors(self) -> Sequence[FileError]:
        """Files that could not be read or parsed."""

    def source_lines(self, path: str) -> Sequence[str]:
        """The lines of a file without their ends; empty when it can't be read any more."""

    def cell(self, path: str, line: int) -> tuple[int, int] | None:
        """For a notebook, the cell and the line in it (1-based) of a line; None for other files."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a report is shown: colour only on a terminal, ``width`` in columns, ``show_all`` lists empty types too."""

    colour: bool = False
    width: int = 100
    show_all: bool = False
    title: str = "cachelint audit"


Renderer = Callable[[Report, Style], Iterator[str]]


def formats(kind: Kind) -> tuple[str, ...]:
    """The names of the formats of a command, from the folder's listing; no format is imported."""
    package = importlib.import_module(f"cachelint.report.{kind}")
    found = (module.name for module in pkgutil.iter_modules(package.__path__))
    return tuple(sorted(name.replace("_", "-") for name in found if not name.startswith("_")))


def renderer(kind: Kind, name: str) -> Renderer:
    """Import one format. Raises ValueError for a name that is not among :func:`formats`."""
    if name not in formats(kind):
        raise ValueError(f"unknown format {name!r}; one of {', '.join(formats(kind))}")
    module = importlib.import_module(f"cachelint.report.{kind}.{name.replace('-', '_')}")
    return cast(Renderer, module.render)
