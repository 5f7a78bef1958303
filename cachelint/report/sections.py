"""The audit with ``--since REV``: what was migrated, then what is still owed, in the formats that have sections."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from cachelint.report import Report, Style, renderer, shape
from cachelint.report.migration import Migration
from cachelint.report.place import where
from cachelint.report.rows import Row, row
from cachelint.report.text import paint, plural
from cachelint.report.totals import count

FORMATS = ("rich", "text", "markdown", "json")


def render(form: str, report: Report, migration: Migration, style: Style) -> Iterator[str]:
    """Both sections with a heading each, and the totals line of today. JSON gets the key ``since``."""
    if form == "json":
        return _json(report, migration, style)
    return _tables(form, report, migration, style)


def _json(report: Report, migration: Migration, style: Style) -> Iterator[str]:
    document = json.loads("".join(renderer("audit", "json")(report, style)))
    document["since"] = {
        "rev": migration.rev,
        "migrated": [shape.kind(kind) for kind in migration.migrated],
        "follow_up": [shape.kind(kind) for kind in migration.follow_up],
        "gone": migration.gone,
    }
    yield json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _tables(form: str, report: Report, migration: Migration, style: Style) -> Iterator[str]:
    sections = (
        (f"Migrated since {migration.rev}", migration.migrated, "Nothing was migrated."),
        ("Follow-up", migration.follow_up, "Nothing is left to do."),
    )
    for title, kinds, nothing in sections:
        yield _heading(form, f"{title} ({plural(len(kinds), 'type')})", style)
        listed = [row(kind, where(report, kind.path, kind.line)) for kind in kinds]
        yield from _table(form, listed, style) if listed else [f"{nothing}\n\n"]
    if migration.gone:
        yield f"Not there any more: {plural(migration.gone, 'flagged type')} of {migration.rev}.\n\n"
    yield count(len(report.files), report.types).line() + "\n"


def _heading(form: str, title: str, style: Style) -> str:
    return f"## {title}\n\n" if form == "markdown" else paint(title, "bold", on=style.colour) + "\n\n"


def _table(form: str, listed: Sequence[Row], style: Style) -> Iterator[str]:
    if form == "markdown":
        from cachelint.report.audit.markdown import markdown_table

        yield from markdown_table(listed)
        yield "\n"
    elif form == "rich":
        from cachelint.report.audit import rich

        yield rich.drawn(rich.table(listed), style) + "\n"
    else:
        from cachelint.report.audit.text import table

        yield from table(listed, style)
