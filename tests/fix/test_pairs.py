"""Before and after, shape by shape; each pair in ``tests/data/fix`` was read line by line."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cachelint.model import Applicability
from tests.fix.differential import fixed

DATA = Path(__file__).parent.parent / "data"
PAIRS = sorted(p for p in (DATA / "fix").glob("*.py") if not p.name.endswith(".fixed.py"))
REFUSED = sorted((DATA / "refused").glob("*.py"))


def after_of(path: Path) -> str:
    return path.with_name(f"{path.stem}.fixed.py").read_text()


@pytest.mark.parametrize("path", PAIRS, ids=lambda p: p.stem)
def test_the_fix_is_what_a_person_would_write(path: Path) -> None:
    outcome = fixed(path.read_text())
    assert outcome.text == after_of(path)
    assert outcome.refused == ()
    assert all(plan.applicability is Applicability.SAFE for plan in outcome.applied)


@pytest.mark.parametrize("path", PAIRS, ids=lambda p: p.stem)
def test_fixing_twice_changes_nothing(path: Path) -> None:
    text = after_of(path)
    ast.parse(text)
    again = fixed(text)
    assert again.text == text
    assert again.applied == ()


@pytest.mark.parametrize("path", PAIRS, ids=lambda p: p.stem)
def test_newlines_stay_what_they_are(path: Path) -> None:
    outcome = fixed(path.read_text().replace("\n", "\r\n"))
    assert outcome.text == after_of(path).replace("\n", "\r\n")


@pytest.mark.parametrize("path", REFUSED, ids=lambda p: p.stem)
def test_what_cannot_be_proved_is_left_alone_with_a_reason(path: Path) -> None:
    text = path.read_text()
    outcome = fixed(text, unsafe=True)
    assert outcome.text == text
    kind = text.splitlines()[0].removeprefix("# refused: ")
    assert {refusal.kind for refusal in outcome.refused} == {kind}
    assert all(refusal.reason.strip() and "\n" not in refusal.reason for refusal in outcome.refused)


def test_every_shape_has_its_other_half() -> None:
    assert {f"{p.stem}.fixed.py" for p in PAIRS} == {p.name for p in (DATA / "fix").glob("*.fixed.py")}
