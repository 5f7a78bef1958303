"""``cachelint explain FILE:LINE``: the evidence behind one verdict, link by link."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from cachelint.cli._console import style, tell, write
from cachelint.cli._scope import Scope, scoped
from cachelint.cli._status import CLEAN, UsageProblem

if TYPE_CHECKING:
    from cachelint.model import FieldReport, TypeReport
    from cachelint.report import Style
    from cachelint.runner import Report

_PLACE = re.compile(r"(?P<path>.+?):(?:cell (?P<cell>\d+):)?(?P<line>\d+)(?::\d+)?\Z", re.DOTALL)


@click.command("explain")
@click.argument("place", metavar="FILE:LINE")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Output format.")
@scoped
def command(scope: Scope, place: str, form: str) -> int:
    """Show the evidence for the field at a line: where its value comes from, and why it has its class."""
    from cachelint.cli._session import Session

    match = _PLACE.match(place)
    if match is None:
        raise UsageProblem(f"{place!r} is not FILE:LINE, as the reports print it")
    path, line = match["path"], int(match["line"])
    report = Session(scope).run((path,))
    if report.errors:
        error = report.errors[0]
        raise UsageProblem(f"{error.path}:{error.line}: {error.message}")
    shown = report.files[0] if report.files else path
    if match["cell"]:
        inside = (int(match["cell"]), line)
        every = range(1, len(report.source_lines(shown)) + 1)
        line = next((number for number in every if report.cell(shown, number) == inside), 0)
    found = at_line(report.types, shown, line)
    if not found:
        raise UsageProblem(f"{path}:{line}: {_nothing(report.types, line)}")
    if form == "json":
        from cachelint.report import shape

        shapes = [
            {"type": kind.type, "path": kind.path, "dialect": kind.dialect, **shape.field(f)} for kind, f in found
        ]
        write([json.dumps(shapes, indent=2, ensure_ascii=False) + "\n"])
        return CLEAN
    look = style(colour=scope.color)
    for position, (kind, field) in enumerate(found):
        write(["\n"] if position else [])
        write(chain(report, kind, field, look))
    if len(found) > 1 and not scope.quiet:
        tell(f"{len(found)} fields meet at {path}:{line}")
    return CLEAN


def at_line(types: Sequence[TypeReport], path: str, line: int) -> list[tuple[TypeReport, FieldReport]]:
    """The fields written at a line, else those whose evidence touches it, else those of the type declared there."""
    fields = [(kind, field) for kind in types for field in kind.fields]
    written = [pair for pair in fields if pair[0].path == path and pair[1].line <= line <= pair[1].end_line]
    if written:
        return written
    touched = [pair for pair in fields if any(link.path == path and link.line == line for link in pair[1].evidence)]
    return touched or [pair for pair in fields if pair[0].path == path and pair[0].line == line]


def _nothing(types: Sequence[TypeReport], line: int) -> str:
    lines = sorted({field.line for kind in types for field in kind.fields}, key=lambda other: abs(other - line))
    if not lines:
        return "no field is kept for backward anywhere in this file"
    return f"no field is kept for backward here; the nearest is on line {lines[0]}"


def chain(report: Report, kind: TypeReport, field: FieldReport, look: Style) -> Iterator[str]:
    """The verdict in words, then each place that it rests on, with its source line."""
    from cachelint.report.excerpt import Span, excerpt
    from cachelint.report.place import lines_around, where
    from cachelint.report.text import CLASS_COLOURS, paint, printable

    on = look.colour
    cls = paint(field.cls.value, CLASS_COLOURS[field.cls.value], "bold", on=on)
    marks = [
        word
        for word, holds in (
            ("registered", field.registered),
            ("never read in backward", not field.read),
            ("persistent", field.persistent),
        )
        if holds
    ]
    name = paint(printable(f"{kind.type}.{field.field}"), "bold", on=on)
    yield f"{name}: {', '.join((cls, *marks))}\n"
    yield f"  {where(report, kind.path, field.line)}:{field.column} ({kind.dialect})\n"
    span = Span(field.line, field.column, field.end_line, field.end_column)
    for line in excerpt(*lines_around(report, kind.path, span), colour=on):
        yield f"  {line}".rstrip() + "\n"
    rows = [
        ("because:", printable(field.reason)),
        ("storage:", f"{field.storage.value}, origin {field.origin.value}, confidence {field.confidence.value}"),
        ("rule:", f"{field.rule} (cachelint rule {field.rule})" if field.rule else "none"),
        ("to do:", printable(field.resolution)),
    ]
    for label, text in rows:
        yield f"  {paint(f'{label:<9}', 'bold', on=on)} {text}\n"
    if field.evidence:
        yield "  " + paint("evidence:", "bold", on=on) + "\n"
    for number, link in enumerate(field.evidence, start=1):
        yield f"    {number}. {where(report, link.path, link.line)}: {printable(link.text)}\n"
        lines = report.source_lines(link.path)
        if 1 <= link.line <= len(lines):
            yield "         " + paint(printable(lines[link.line - 1].strip()[:120]), "dim", on=on) + "\n"
