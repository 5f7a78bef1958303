"""``docs/formats.md`` lists exactly the keys that the reports have."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from report_samples import ERROR, EXP, FIELD, LIFETIME

from cachelint.cli import audit, check
from cachelint.report import shape
from cachelint.report.totals import count

TEXT = (Path(__file__).parent.parent / "docs" / "formats.md").read_text(encoding="utf-8")

SHAPES = {
    "finding": shape.finding(LIFETIME, (3, 2)),
    "error": shape.error(ERROR),
    "type": shape.kind(EXP),
    "field": shape.field(FIELD),
    "totals": count(1, [EXP]).shape(),
}


@pytest.mark.parametrize("name", SHAPES)
def test_keys(name: str) -> None:
    table = TEXT.split(f"<!-- keys: {name} -->\n")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(SHAPES[name])


def test_formats() -> None:
    table, rest = TEXT.split("## `cachelint audit --format`")
    assert tuple(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE))[: len(check._FORMATS)] == check._FORMATS
    assert all(f"`{name}`" in rest for name in audit._FORMATS)


def test_the_page_speaks_of_every_value() -> None:
    for kind in {type(getattr(FIELD, field.name)) for field in dataclasses.fields(FIELD)}:
        for value in getattr(kind, "__members__", {}).values():
            assert f'`"{value.value}"`' in TEXT, value


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/formats.md"])
def test_paths_in_running_text_exist(page: str) -> None:
    root = Path(__file__).parent.parent
    prose = re.sub(r"^( *)```.*?^\1```$", "", (root / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"`((?:cachelint|docs|fixtures|rules|tests)/[\w./-]+)`", prose))
    real = {path for path in named if not re.search(r"some|cl1xx|CL1xx", path)}
    assert all((root / path).exists() for path in real), real
