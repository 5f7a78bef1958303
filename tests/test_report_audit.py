"""Formats of ``audit``: the rows, the totals, and the keys that other programs rely on."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

from report_samples import CLEAN, DONE, EXP, FIELD, HOST, LIVE, RELU, Sample

from cachelint.model import FieldClass
from cachelint.report import Style, formats, renderer
from cachelint.report.rows import row
from cachelint.report.totals import count

TOTALS = (
    "5 types, 2 flagged, 2 without a cached field; 5 fields: 1 SAFE, 2 RECOMPUTE, 1 SAVE; 1 registered; 1 never read\n"
)


def shown(name: str, report: Sample, **style: Any) -> str:
    return "".join(renderer("audit", name)(report, Style(**style)))


def test_formats_are_discovered() -> None:
    assert formats("audit") == ("csv", "html", "json", "markdown", "rich", "text")


def test_markdown() -> None:
    assert shown("markdown", Sample()) == (
        "| Type                         | Cached field(s)                  | Class          | Resolution |\n"
        "| ---------------------------- | -------------------------------- | -------------- | ---------- |\n"
        "| [Exp](kernels/exp.py#L1)     | SAVE: `y`; SAFE: `scale`         | SAFE + SAVE    | save `y` with"
        " ctx.save_for_backward |\n"
        "| [Relu](layers/relu.py#L9)    | `last_input`; never read: `mask` | RECOMPUTE      | `last_input`: read the"
        " live input `x`; `mask`: remove it |\n"
        "| [Done](layers/done.py#L3)    | registered: `x`                  | SAFE           | registered |\n"
        "| [Block](layers/block.py#L20) | -                                | SAVE (fan-out) | -          |\n"
        "\n" + TOTALS
    )
    assert "[Add](layers/add.py#L1)" in shown("markdown", Sample(), show_all=True)
    assert shown("markdown", CLEAN).startswith("1 type, 0 flagged, 1 without a cached field; 0 fields: ")


def test_markdown_keeps_odd_field_names_in_their_cell() -> None:
    kind = replace(EXP, type="A.<locals>.B", fields=(replace(FIELD, field="a | `b`", resolution="keep a|b *or* _c_"),))
    line = shown("markdown", Sample(types=(kind,))).splitlines()[2]
    assert len(re.findall(r"(?<!\\)\|", line)) == 5
    assert r"[A.\<locals\>.B]" in line
    assert r"`` a \| `b` ``" in line
    assert r"keep a\|b \*or\* \_c\_" in line


def test_text() -> None:
    assert shown("text", Sample()) == (
        "Type   Cached field(s)               Class           Resolution"
        "                                            Where\n"
        "Exp    SAVE: y; SAFE: scale          SAFE + SAVE     save `y` with ctx.save_for_backward"
        "                   kernels/exp.py:1\n"
        "Relu   last_input; never read: mask  RECOMPUTE       last_input: read the live input `x`; mask: remove it"
        "  layers/relu.py:9\n"
        "Done   registered: x                 SAFE            registered"
        "                                            layers/done.py:3\n"
        "Block  -                             SAVE (fan-out)  -         "
        "                                            layers/block.py:20\n"
        "\n" + TOTALS
    )


def test_rich_fits_the_terminal_and_says_the_same() -> None:
    text = shown("rich", Sample(), width=80)
    assert max(map(len, text.splitlines()[:-1])) <= 80
    assert "\x1b" not in text
    flat = " ".join(text.split())
    for words in ("Exp", "kernels/exp.py:1", "SAFE + SAVE", "last_input: read the", "never read: mask", TOTALS.strip()):
        assert words in flat
    assert "\x1b[33mRECOMPUTE" in shown("rich", Sample(), width=100, colour=True)


def test_resolution_names_only_what_needs_work() -> None:
    assert row(EXP, "").resolution_cell() == "save `y` with ctx.save_for_backward"
    assert row(RELU, "").resolution_cell() == "last_input: read the live input `x`; mask: remove it"
    assert row(DONE, "").resolution_cell() == "registered"
    assert row(replace(EXP, fields=(HOST,)), "").resolution_cell() == "nothing to do"
    second = replace(FIELD, field="z", resolution="save `z` with ctx.save_for_backward")
    assert row(replace(EXP, fields=(FIELD, second)), "").resolution_cell() == "save `y, z` with ctx.save_for_backward"
    live = [replace(LIVE, field=name, resolution=f"read the live input {name}") for name in ("q", "k", "v")]
    assert row(replace(EXP, fields=(*live, FIELD)), "").resolution_cell() == (
        "read the live inputs q, k, v; save `y` with ctx.save_for_backward"
    )
    other = replace(LIVE, field="ctx", resolution="read the live input ctx.x")
    assert row(replace(EXP, fields=(other, FIELD)), "").resolution_cell() == (
        "ctx: read the live input ctx.x; save `y` with ctx.save_for_backward"
    )
    twice = replace(EXP, fields=(FIELD, replace(FIELD, line=9), HOST))
    assert (row(twice, "").field_cell(), row(twice, "").resolution_cell()) == (
        "SAVE: y; SAFE: scale",
        "save `y` with ctx.save_for_backward",
    )


def test_json_has_the_promised_keys() -> None:
    document = json.loads(shown("json", Sample()))
    assert list(document) == ["schema", "tool", "types", "totals", "errors"]
    assert document["tool"]["name"] == "cachelint"
    assert [kind["type"] for kind in document["types"]] == ["Exp", "Relu", "Done", "Block", "Add"]
    first = document["types"][0]
    assert list(first) == ["path", "line", "type", "dialect", "class", "fields"]
    assert first["class"] == "SAFE + SAVE"
    field = first["fields"][0]
    assert list(field)[:13] == [
        "field",
        "line",
        "column",
        "class",
        "storage",
        "origin",
        "registered",
        "read",
        "persistent",
        "rule",
        "confidence",
        "reason",
        "evidence",
    ]
    assert (field["class"], field["storage"], field["origin"], field["read"]) == ("SAVE", "device", "output", True)
    assert field["evidence"][1] == {"path": "kernels/exp.py", "line": 7, "text": "forward returns `y`"}
    assert first["fields"][1]["rule"] is None
    totals = document["totals"]
    assert {key: totals[key] for key in ("files", "types", "fields", "SAFE", "RECOMPUTE", "SAVE", "findings")} == {
        "files": 5,
        "types": 5,
        "fields": 5,
        "SAFE": 1,
        "RECOMPUTE": 2,
        "SAVE": 1,
        "findings": 2,
    }
    assert document["errors"] == [{"path": "layers/broken.py", "line": 7, "message": "invalid syntax: expected ':'"}]
    empty = json.loads(shown("json", Sample(files=(), types=(), errors=())))
    assert (empty["types"], empty["totals"]["types"], empty["errors"]) == ([], 0, [])


def test_totals_leave_fields_that_nobody_reads_out_of_the_classes() -> None:
    dead = replace(FIELD, read=False)
    kept = replace(FIELD, cls=FieldClass.RECOMPUTE, registered=True)
    totals = count(3, [replace(EXP, fields=(FIELD, HOST, dead, kept)), DONE])
    assert (totals.files, totals.types, totals.flagged, totals.empty) == (3, 2, 1, 0)
    assert (totals.fields, totals.safe, totals.recompute, totals.save) == (5, 1, 2, 1)
    assert (totals.registered, totals.unread, totals.findings) == (2, 1, 1)


def test_csv_has_one_line_a_field() -> None:
    kind = replace(EXP, fields=(replace(FIELD, reason='says "a, b"\nand c'),))
    lines = list(csv.DictReader(io.StringIO(shown("csv", Sample(types=(kind, DONE, *CLEAN.types))), newline="")))
    assert [(line["type"], line["field"], line["class"]) for line in lines] == [
        ("Exp", "y", "SAVE"),
        ("Done", "x", "RECOMPUTE"),
    ]
    assert lines[0]["reason"] == 'says "a, b"\nand c'
    assert (lines[1]["registered"], lines[1]["rule"], lines[1]["type_class"]) == ("true", "", "SAFE")
    every = list(csv.DictReader(io.StringIO(shown("csv", CLEAN, show_all=True))))
    assert [(line["type"], line["field"]) for line in every] == [("Add", "")]


class Page(HTMLParser):
    """Checks that tags nest, and collects the text and whatever would be fetched."""

    VOID = frozenset({"meta", "br", "hr", "img", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.fetched += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "onclick")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)


def test_html_is_one_page_that_fetches_nothing_and_escapes_everything() -> None:
    kind = replace(EXP, type="A.<locals>.<script>", fields=(replace(FIELD, field="x & <y>"), HOST))
    text = shown("html", Sample(types=(kind, RELU)), title="audit of <main>")
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.fetched == []
    assert "<script" not in text
    assert "url(" not in text
    words = " ".join(" ".join(page.words).split())
    for expected in (
        "audit of <main>",
        "A.<locals>.<script>",
        "x & <y>",
        "forward returns `y`",
        ["SAFE", "+", "SAVE"][2],
    ):
        assert expected in words
    assert "layers/broken.py:7 invalid syntax: expected ':'" in words
