"""One self-contained HTML page: no script, no font, no request to anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from cachelint import __version__
from cachelint.model import FieldClass, FieldReport, TypeReport
from cachelint.report import Report, Style
from cachelint.report.place import where
from cachelint.report.rows import HEAD, listed, row, urgency
from cachelint.report.text import printable
from cachelint.report.totals import Totals, count

_STYLE = """
:root { color-scheme: light dark; --line: #d0d7de; --dim: #656d76; }
:root { --safe: #1a7f37; --recompute: #9a6700; --save: #cf222e; }
@media (prefers-color-scheme: dark) {
  :root { --line: #3d444d; --dim: #9198a1; --safe: #3fb950; --recompute: #d29922; --save: #f85149; }
}
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; }
code { font: 0.92em ui-monospace, monospace; overflow-wrap: anywhere; }
dl.totals { display: flex; flex-wrap: wrap; gap: 0.5rem 2rem; margin: 1rem 0 1.5rem; }
dl.totals dt { color: var(--dim); font-size: 0.85rem; }
dl.totals dd { font-size: 1.3rem; margin: 0; }
table { border-collapse: collapse; table-layout: fixed; width: 100%; }
th:nth-child(3) { width: 8rem; }
td { overflow-wrap: anywhere; }
th, td { border-bottom: 1px solid var(--line); padding: 0.45rem 0.7rem; text-align: left; vertical-align: top; }
th { position: sticky; top: 0; background: Canvas; }
.where, .remark, summary, ol { color: var(--dim); font-size: 0.88rem; }
.SAFE, .done { color: var(--safe); } .RECOMPUTE { color: var(--recompute); } .SAVE { color: var(--save); }
.class { font-weight: 600; overflow-wrap: normal; }
ol { margin: 0.3rem 0 0.3rem 1.2rem; padding: 0; }
"""


def render(report: Report, style: Style) -> Iterator[str]:
    """The page: totals, one row a type with the evidence of each field folded away, then the errors."""
    title = escape(style.title)
    yield f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<style>{_STYLE}</style>\n</head>\n<body>\n"
    yield f"<h1>{title}</h1>\n"
    yield from _totals(count(len(report.files), report.types))
    yield f"<table>\n<thead><tr>{''.join(f'<th>{name}</th>' for name in HEAD)}</tr></thead>\n<tbody>\n"
    for kind in listed(report.types, show_all=style.show_all):
        yield from _type(kind, report)
    yield "</tbody>\n</table>\n"
    if report.errors:
        yield "<h2>Not read</h2>\n<ul>\n"
        for error in report.errors:
            yield f"<li><code>{_text(error.path)}:{error.line}</code> {_text(error.message)}</li>\n"
        yield "</ul>\n"
    yield f'<p class="where">cachelint {escape(__version__)}</p>\n</body>\n</html>\n'


def _totals(totals: Totals) -> Iterator[str]:
    pairs = (
        ("Types", totals.types),
        ("Flagged", totals.flagged),
        ("SAFE", totals.safe),
        ("RECOMPUTE", totals.recompute),
        ("SAVE", totals.save),
        ("Registered", totals.registered),
        ("Never read", totals.unread),
    )
    yield '<dl class="totals">\n'
    for label, value in pairs:
        yield f"<div><dt>{label}</dt><dd>{value}</dd></div>\n"
    yield "</dl>\n"


def _type(kind: TypeReport, report: Report) -> Iterator[str]:
    shown = row(kind, where(report, kind.path, kind.line))
    place = f"{escape(shown.where)}, {_text(kind.dialect)}"
    yield f'<tr>\n<td><code>{_text(kind.type)}</code><br><span class="where">{place}</span></td>\n<td>'
    for field in sorted(kind.fields, key=urgency):
        yield from _field(field, report)
    yield ("-" if not kind.fields else "") + f"</td>\n<td>{_class(shown.cls, shown.flagged)}</td>\n<td>"
    yield (
        "<br>".join(
            (f"<code>{_text(', '.join(who))}</code>: " if who else "") + _text(what) for who, what in shown.resolutions
        )
        or "-"
    )
    yield "</td>\n</tr>\n"


def _field(field: FieldReport, report: Report) -> Iterator[str]:
    remark = ", ".join(
        word for word, holds in (("registered", field.registered), ("never read", not field.read)) if holds
    )
    label = f'<code class="{_tone(field)}">{_text(field.field)}</code>' + (
        f' <span class="remark">({remark})</span>' if remark else ""
    )
    yield f"<details><summary>{label}</summary>\n<p>{field.cls.value}, {field.storage.value}, {field.origin.value}; "
    yield f"confidence {field.confidence.value}. {_text(field.reason)}</p>\n<ol>\n"
    for link in field.evidence:
        yield f"<li><code>{escape(where(report, link.path, link.line))}</code> {_text(link.text)}</li>\n"
    yield "</ol></details>\n"


def _tone(field: FieldReport) -> str:
    return field.cls.value if field.flagged else "done"


def _class(text: str, flagged: bool) -> str:
    shown = escape(text)
    for name in FieldClass:
        tone = name.value if flagged or name is FieldClass.SAFE else "done"
        shown = shown.replace(name.value, f'<span class="{tone}">{name.value}</span>')
    return f'<span class="class">{shown}</span>'


def _text(text: str) -> str:
    return escape(printable(text))
