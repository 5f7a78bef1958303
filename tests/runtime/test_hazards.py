"""The twenty hazards: every fixture is red where its fault was planted, green without it, and the page is current."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachelint.runtime.hazard_table import HAZARDS
from cachelint.runtime.hazards import CHECKS, FOLDER, Row, check_overwrite, load, main, markdown, rows, specimens

ROOT = Path(__file__).parents[2]

# What a check must say, by hand: reset with poison in one step, two steps, gradient check. R red, E error, G green.
EXPECTED = {
    "H1": "RGG",
    "H2": "RGG",
    "H3": "RGG",
    "H4": "GGG",
    "H5": "RGG",
    "H6": "EEE",
    "H7": "GRG",
    "H8": "GGG",
    "H9": "RGG",
    "H10": "RGG",
    "H11": "GRG",
    "H12": "RGG",
    "H13": "RGG",
    "H14": "GGG",
    "H15": "RRG",
    "H16": "RGG",
    "H17": "RRG",
    "H18": "RGG",
    "H19": "GGR",
    "H20": "GGE",
}
CAUGHT_BY_OVERWRITING = {"H1", "H3", "H5"}


@pytest.fixture(scope="module")
def found() -> dict[str, Row]:
    return {row.hazard.id: row for row in rows()}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_check_says_what_it_must(found: dict[str, Row], name: str) -> None:
    cells = found[name].legacy.dynamic
    assert (
        "".join(cells[CHECKS.index(check)][0].upper() for check in ("reset", "two steps", "gradcheck"))
        == EXPECTED[name]
    )
    assert (cells[CHECKS.index("overwrite")] == "red") == (name in CAUGHT_BY_OVERWRITING)


@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: hazard.id)
def test_every_cell_is_as_promised_and_without_the_fault_all_is_green(found: dict[str, Row], hazard) -> None:
    row = found[hazard.id]
    assert row.fixed_is_green, row.fixed
    assert row.is_reported, row.legacy.static
    assert row.holds, row.legacy


def test_each_hazard_has_one_fixture() -> None:
    assert [hazard.id for hazard in HAZARDS] == [f"H{number}" for number in range(1, 21)] == list(EXPECTED)
    files = {path.stem for path in (ROOT / FOLDER).glob("*.py")}
    assert files == {hazard.fixture for hazard in HAZARDS}
    assert all(hazard.fixture.startswith(f"h{hazard.id[1:]:>02}_") for hazard in HAZARDS)


def test_the_page_is_current(found: dict[str, Row]) -> None:
    page = (ROOT / "docs" / "hazards.md").read_text(encoding="utf-8")
    assert page == markdown(list(found.values())), "run python -m cachelint.runtime.hazards -o docs/hazards.md"


def test_a_broken_promise_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import cachelint.runtime.hazards as hazards

    monkeypatch.setattr(hazards, "check_reset", lambda specimen: "green")
    monkeypatch.setattr(hazards, "HAZARDS", HAZARDS[1:3])
    assert main([]) == 1
    assert "2 hazards, 2 not as promised H2 H3" in capsys.readouterr().err


def test_overwriting_tells_a_mixture_from_old_and_new() -> None:
    mixed, kept = (load(hazard) for hazard in (HAZARDS[4], HAZARDS[15]))
    assert [check_overwrite(one) for one in specimens(mixed, "legacy")] == ["red"]
    assert [check_overwrite(one) for one in specimens(kept, "fixed")] == ["green"]
