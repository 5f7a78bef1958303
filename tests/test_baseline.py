"""Baselines survive moves and count what is equal."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachelint import baseline
from cachelint.baseline import BaselineError, Comparison
from cachelint.model import Finding

TEXT = {"p/a.py": ["import torch", "", "self.x = x", "self.y = y"], "b.py": ["ctx.z = z"]}
X = Finding("CL101", "cached-live-input", "p/a.py", 3, 1, 3, 7, "m", "T", "x")
Y = Finding("CL103", "cached-intermediate", "p/a.py", 4, 1, 4, 7, "m", "T", "y")
Z = Finding("CL101", "cached-live-input", "b.py", 1, 1, 1, 7, "m", "U", "z")


def _compare(
    accepted: list[Finding],
    now: list[Finding],
    text: dict[str, list[str]] = TEXT,
    examined: tuple[str, ...] = tuple(TEXT),
) -> Comparison:
    entries = baseline.build(accepted, "/w", "/w", lambda path: TEXT[path])
    return baseline.compare(now, entries, "/w", "/w", lambda path: text.get(path, []), examined)


def test_what_was_accepted_is_not_new() -> None:
    found = _compare([X, Z], [X, Y, Z])
    assert (found.new, found.accepted, found.stale) == ((Y,), (X, Z), ())


def test_lines_may_move_and_be_indented_anew() -> None:
    moved = {**TEXT, "p/a.py": ["# new", "# new", *TEXT["p/a.py"][:2], "    self.x = x", "self.y = y"]}
    assert _compare([X], [replace(X, line=5, column=5)], moved).new == ()


@pytest.mark.parametrize(
    "other",
    [
        replace(X, code="CL102"),
        replace(X, path="b.py", line=1),
        replace(X, type="V"),
        replace(X, field="w"),
        replace(X, line=4),
    ],
)
def test_anything_else_that_differs_is_new(other: Finding) -> None:
    found = _compare([X], [other])
    assert found.new == (other,)
    assert [entry.field for entry in found.stale] == ["x"]


def test_equal_findings_are_counted() -> None:
    found = _compare([X, X], [X, X, X])
    assert (len(found.accepted), len(found.new)) == (2, 1)
    (stale,) = _compare([X, X, X], [X]).stale
    assert stale.count == 2


def test_files_that_were_not_examined_are_not_stale(tmp_path: Path) -> None:
    (tmp_path / "b.py").touch()
    entries = baseline.build([X, Z], str(tmp_path), str(tmp_path), lambda path: TEXT[path])
    found = baseline.compare([], entries, str(tmp_path), str(tmp_path), lambda path: TEXT[path], ["p/a.py"])
    assert [entry.path for entry in found.stale] == ["p/a.py"]
    (tmp_path / "b.py").unlink()  # a file that is gone is stale
    found = baseline.compare([], entries, str(tmp_path), str(tmp_path), lambda path: TEXT[path], ["p/a.py"])
    assert [entry.path for entry in found.stale] == ["b.py", "p/a.py"]


def test_paths_are_relative_to_the_baseline_file() -> None:
    entries = baseline.build([X], "/w", "/w", lambda path: TEXT[path])
    inside = replace(X, path="a.py")
    found = baseline.compare([inside], entries, "/w", "/w/p", lambda path: TEXT["p/a.py"], ["a.py"])
    assert found.new == ()


def test_the_file_is_readable_json_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    entries = baseline.build([X, Y, Z, X], "/w", "/w", lambda name: TEXT[name])
    baseline.save(str(path), entries)
    assert baseline.load(str(path)) == entries
    data = json.loads(path.read_text())
    assert [(item["path"], item["code"], item["count"]) for item in data["findings"]] == [
        ("b.py", "CL101", 1),
        ("p/a.py", "CL101", 2),
        ("p/a.py", "CL103", 1),
    ]
    assert "line" not in data["findings"][0]  # an edit above a finding must not change the file


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not a baseline"),
        ("[]", "not a baseline"),
        ('{"schema": 1}', "not a baseline"),
        ('{"schema": 2, "findings": []}', "refresh"),
        ('{"schema": 1, "findings": [{"path": 3}]}', "not a baseline"),
        ('{"schema": 1, "findings": [3]}', "not a baseline"),
        ("[" * 100_000, "not a baseline"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "base.json"
    path.write_text(text)
    with pytest.raises(BaselineError, match=word) as caught:
        baseline.load(str(path))
    assert "\n" not in str(caught.value)
    with pytest.raises(BaselineError, match="no such file"):
        baseline.load(str(tmp_path / "none.json"))
    with pytest.raises(BaselineError, match="cannot be written"):
        baseline.save(str(tmp_path / "no/base.json"), ())


def test_what_is_no_regular_file_is_left_as_it_is(tmp_path: Path) -> None:
    """A baseline is put in place by renaming: a device or a pipe of that name would be gone."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(BaselineError, match="cannot be written: Not a regular file"):
        baseline.save(str(pipe), ())
    assert pipe.is_fifo()
    with pytest.raises(BaselineError, match="not a regular file"):
        baseline.load(str(pipe))
    with pytest.raises(BaselineError, match="cannot be written: Is a directory"):
        baseline.save(str(tmp_path), ())


def test_a_file_name_of_raw_bytes(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    entries = baseline.build([replace(X, path="p/\udcff.py")], "/w", "/w", lambda name: ())
    baseline.save(str(path), entries)
    assert baseline.load(str(path)) == entries


_FINDINGS = st.lists(st.sampled_from([X, Y, Z, replace(X, line=4), replace(Y, code="CL102")]), max_size=6)


@given(_FINDINGS, _FINDINGS)
def test_accounts_balance(accepted: list[Finding], now: list[Finding]) -> None:
    found = _compare(accepted, now)
    assert sorted(found.new + found.accepted, key=repr) == sorted(now, key=repr)
    assert len(found.accepted) + sum(entry.count for entry in found.stale) == len(accepted)
    assert _compare(now, now).new == ()
