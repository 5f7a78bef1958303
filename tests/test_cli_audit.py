"""``audit``, ``explain``, ``rule``, ``config`` and ``clean`` from end to end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from test_cli_check import CLEAN, OPS

from cachelint import cli
from cachelint.cli.audit import _FORMATS
from cachelint.report import formats

EMPTY = """\
import torch


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a flagged, a migrated and an empty type."""
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "clean.py").write_text(CLEAN)
    (tmp_path / "twice.py").write_text(EMPTY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_list_of_formats_is_the_folder() -> None:
    assert sorted(_FORMATS) == sorted(formats("audit"))


def test_table(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["audit", "--table"]) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[:4]]
    assert cells[0] == ["Type", "Cached field(s)", "Class", "Resolution"]
    assert cells[2][:2] == ["[Exp](clean.py#L4)", "registered: `y`"]
    assert cells[3][:3] == ["[Exp](ops.py#L4)", "SAVE: `y`; RECOMPUTE: `x`", "RECOMPUTE + SAVE"]
    assert lines[4] == ""
    assert lines[5].startswith(
        "3 types, 1 flagged, 1 without a cached field; 3 fields: 0 SAFE, 1 RECOMPUTE, 2 SAVE; 1 registered"
    )
    assert cli.run(["audit", "--table", "--all"]) == 0
    assert "[Twice](twice.py#L4)" in capsys.readouterr().out
    assert cli.run(["audit", "--table", "--format", "json"]) == 2


def test_exit_status(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["audit", "--fail-on-findings"]) == 1
    assert cli.run(["audit", "--fail-on-findings", "clean.py"]) == 0
    (project / "broken.py").write_text("def f(:\n")
    assert cli.run(["audit"]) == 3
    assert cli.run(["audit", "--fail-on-findings"]) == 3
    out, err = capsys.readouterr()
    assert "broken.py:1: " in err
    assert "broken.py" not in out


def test_json_is_complete(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["audit", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(kind["path"], kind["type"], len(kind["fields"])) for kind in document["types"]] == [
        ("clean.py", "Exp", 1),
        ("ops.py", "Exp", 2),
        ("twice.py", "Twice", 0),
    ]
    assert document["totals"]["files"] == 3
    assert document["totals"]["findings"] == 2


@pytest.mark.parametrize("form", _FORMATS)
def test_every_format_runs(project: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    assert cli.run(["audit", "--format", form]) == 0
    printed = capsys.readouterr().out
    assert "Exp" in printed
    assert cli.run(["audit", "--format", form, "-o", "report"]) == 0
    assert (project / "report").read_text() == printed


def git(*arguments: str) -> None:
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def test_since(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One type migrated, one moved and migrated in part, one deleted; seen from a subfolder too."""
    package = project / "package"
    package.mkdir()
    for name in ("ops", "clean", "twice"):
        (project / f"{name}.py").rename(package / f"{name}.py")
    (package / "partly.py").write_text(OPS.replace("Exp", "Partly"))
    (package / "gone.py").write_text(OPS.replace("Exp", "Gone"))
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "before")
    (package / "ops.py").write_text(CLEAN.replace("y)\n", "y, x)\n").replace("(y,)", "y, x"))
    (package / "partly.py").rename(package / "moved.py")
    moved = OPS.replace("Exp", "Partly").replace("        ctx.x = x\n", "").replace(" + 0 * ctx.x", "")
    (package / "moved.py").write_text(moved)
    (package / "gone.py").unlink()

    assert cli.run(["audit", "--since", "HEAD", "--format", "markdown"]) == 0
    migrated, _, follow_up = capsys.readouterr().out.partition("## Follow-up")
    assert migrated.startswith("## Migrated since HEAD (2 types)\n")
    assert "[Exp](package/ops.py#L4)" in migrated
    assert "[Partly](package/moved.py#L4)" in migrated
    assert "no longer cached" in migrated
    assert follow_up.count("| [") == 1
    assert "| [Partly](package/moved.py#L4) | `y`" in follow_up
    assert "Not there any more: 1 flagged type of HEAD." in follow_up

    monkeypatch.chdir(package)
    assert cli.run(["audit", "--since", "HEAD", "--format", "json", "ops.py"]) == 0
    since = json.loads(capsys.readouterr().out)["since"]
    assert [(kind["path"], kind["type"]) for kind in since["migrated"]] == [("ops.py", "Exp")]
    assert {field["resolution"] for field in since["migrated"][0]["fields"]} == {"registered"}
    assert since["follow_up"] == []


def test_since_refuses_what_it_cannot_compare(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["audit", "--since", "HEAD"]) == 2
    git("init", "-q")
    assert cli.run(["audit", "--since", "v9"]) == 2
    assert "there is no revision 'v9'" in capsys.readouterr().err
    assert cli.run(["audit", "--since", "v9", "--format", "csv"]) == 2
    assert "--since has no csv format" in capsys.readouterr().err


def test_explain(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "ops.py:8"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Exp.y: SAVE\n  ops.py:8:9 (torch-function)\n")
    assert "\n  because:  " in out
    assert "\n  evidence:\n    1. ops.py:" in out
    assert cli.run(["explain", "ops.py:9:13", "--format", "json"]) == 0
    (field,) = json.loads(capsys.readouterr().out)
    assert (field["type"], field["field"], field["class"]) == ("Exp", "x", "RECOMPUTE")
    assert cli.run(["explain", "ops.py:4"]) == 0
    out, err = capsys.readouterr()
    assert "Exp.y: SAVE" in out
    assert "Exp.x: RECOMPUTE" in out
    assert err == "2 fields meet at ops.py:4\n"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("ops.py:1", "no field is kept for backward here; the nearest is on line"),
        ("twice.py:4", "no field is kept for backward anywhere in this file"),
        ("missing.py:4", "missing.py:1: "),
        ("ops.py", "is not FILE:LINE"),
    ],
)
def test_explain_says_why_there_is_nothing(
    project: Path, capsys: pytest.CaptureFixture[str], place: str, words: str
) -> None:
    assert cli.run(["explain", place]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert len(err.splitlines()) == 1


def test_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["rule", "cl104"]) == 0
    assert capsys.readouterr().out.startswith("CL104 cached-output\n\n")
    assert cli.run(["rule", "cached-output", "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("# CL104 cached-output\n\n")
    assert cli.run(["rule", "CL104", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "cached-output"
    assert cli.run(["rule"]) == 0
    assert "\nCL104  cached-output " in capsys.readouterr().out
    assert cli.run(["rule", "--format", "json"]) == 0
    assert {"code", "name", "summary"} <= set(json.loads(capsys.readouterr().out)[0])


def test_config(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text('[tool.cachelint]\nignore = ["CL101"]\n')
    assert cli.run(["config"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("pyproject.toml")
    (ignore,) = [line for line in lines if line.startswith("ignore ")]
    assert ignore.split("=", 1)[1].strip() == '["CL101"]  # pyproject.toml'
    assert cli.run(["config", "--isolated", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["ignore"] == {"value": [], "origin": "default"}
    assert cli.run(["config", "--keys"]) == 0
    assert "unknown-storage" in capsys.readouterr().out
    assert cli.run(["config", "nowhere"]) == 2


def test_clean(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CACHELINT_CACHE_DIR", raising=False)
    assert cli.run(["audit", "-q"]) == 0
    assert (project / ".cachelint_cache").is_dir()
    assert cli.run(["clean"]) == 0
    assert not (project / ".cachelint_cache").exists()
    assert cli.run(["clean"]) == 0
    assert capsys.readouterr().err.endswith("there is no cache here\n")
    assert cli.run(["audit", "-q", "--no-cache"]) == 0
    assert not (project / ".cachelint_cache").exists()
