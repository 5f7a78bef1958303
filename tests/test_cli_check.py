"""``check`` from end to end: real files, real engine, every option."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cachelint import cli
from cachelint.cli.check import _FORMATS
from cachelint.report import formats

OPS = """\
import torch


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.exp(x)
        ctx.y = y
        ctx.x = x
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.y + 0 * ctx.x
"""
PLACES = ["ops.py:8:9: CL104", "ops.py:9:9: CL101"]

CLEAN = """\
import torch


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * y
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one bad and one good file, as the working directory."""
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "clean.py").write_text(CLEAN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CACHELINT_OUTPUT_FORMAT", raising=False)
    return tmp_path


def check(*arguments: str) -> int:
    return cli.run(["check", *arguments])


def places(text: str) -> list[str]:
    """The start of each concise line, up to its code."""
    return [" ".join(line.split(" ")[:2]) for line in text.splitlines()]


def test_the_list_of_formats_is_the_folder() -> None:
    assert sorted(_FORMATS) == sorted(formats("check"))


def test_findings_go_to_stdout_and_the_summary_to_stderr(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check() == 1
    out, err = capsys.readouterr()
    assert [line for line in places(out) if line.startswith("ops.py:")] == PLACES
    assert " 8 |         ctx.y = y\n   |         ^^^^^\n" in out
    assert err.startswith("2 findings in 1 of 2 files")
    assert check("clean.py") == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", "no findings in 1 file\n")


def test_quiet_and_exit_zero(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("-q", "--exit-zero", "--output-format", "concise") == 0
    out, err = capsys.readouterr()
    assert (places(out), err) == (PLACES, "")


@pytest.mark.parametrize("form", _FORMATS)
def test_every_format_runs_and_says_where(project: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    assert check("--output-format", form) == 1
    out = capsys.readouterr().out
    assert "CL104" in out
    assert "ops.py" in out
    if form in ("json", "gitlab", "sarif"):
        json.loads(out)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--select", "CL101"), PLACES[1:]),
        (("--select", "CL1", "--ignore", "CL101"), PLACES[:1]),
        (("--select", "CL2,CL104"), PLACES[:1]),
        (("--select", "cached-output"), PLACES[:1]),
        (("--ignore", "CL101", "--ignore", "CL104"), []),
        (("--select", "CL3", "--extend-select", "CL101"), PLACES[1:]),
    ],
)
def test_selection(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: list[str]
) -> None:
    assert check("--output-format", "concise", *arguments) == (1 if expected else 0)
    assert places(capsys.readouterr().out) == expected


def test_a_selector_of_no_rule_is_a_usage_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--select", "CL999") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "CL999" in err


def test_a_configuration_error_names_its_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text('[tool.cachelint]\nselect = ["CL"]\ncolour = "red"\n')
    assert check() == 2
    assert capsys.readouterr().err.startswith("cachelint: error: pyproject.toml:3: unknown key 'colour'")
    assert check("--isolated") == 1


def test_configuration_and_command_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text('[tool.cachelint]\nignore = ["CL101"]\noutput-format = "concise"\n')
    assert check() == 1
    assert places(capsys.readouterr().out) == PLACES[:1]
    (project / "other.toml").write_text('select = ["CL101"]\n')
    assert check("--config", "other.toml", "--output-format", "concise") == 1
    assert places(capsys.readouterr().out) == PLACES[1:]


def test_statistics(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "more.py").write_text(OPS)
    assert check("--statistics", "--ignore", "CL101") == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split()[:2] == ["2", "CL104"]
    assert line.endswith("cached-output")
    check("--statistics", "--output-format", "json")
    assert [(row["code"], row["count"]) for row in json.loads(capsys.readouterr().out)] == [("CL101", 2), ("CL104", 2)]


def test_an_unreadable_file_outweighs_findings_and_the_rest_goes_on(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "broken.py").write_text("class A:\n    def f(:\n")
    assert check("--output-format", "concise", ".", "missing.py") == 3
    out, err = capsys.readouterr()
    assert places(out) == PLACES
    assert "broken.py:2: " in err
    assert "missing.py:1: " in err
    assert "Traceback" not in err
    assert check("--exit-zero") == 3


def test_standard_input(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(OPS.encode())))
    assert check("-", "--stdin-filename", "new/ops.py", "--output-format", "concise") == 1
    assert places(capsys.readouterr().out) == [f"new/{place}" for place in PLACES]
    assert check("--stdin-filename", "x.py") == 2


def test_output_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("-o", "report.json", "--output-format", "json") == 1
    assert capsys.readouterr().out == ""
    assert len(json.loads((project / "report.json").read_text())["findings"]) == 2
    assert check("-o", "no/such/folder/report.json") == 2


def test_baseline(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--write-baseline", "base.json") == 0
    assert check("--baseline", "base.json") == 0
    (project / "ops.py").write_text(
        "# moved down\n" + OPS.replace("ctx.x = x", "ctx.x = x\n        ctx.z = x @ x").replace("0 *", "ctx.z *")
    )
    capsys.readouterr()
    assert check("--baseline", "base.json", "--output-format", "concise") == 1
    assert places(capsys.readouterr().out) == ["ops.py:11:9: CL103"]
    (project / "ops.py").write_text(CLEAN)
    assert check("--baseline", "base.json") == 0
    assert "2 accepted findings are gone" in capsys.readouterr().err
    assert check("--baseline", "none.json") == 2
    (project / "pyproject.toml").write_text('[tool.cachelint]\nbaseline = "base.json"\n')
    (project / "ops.py").write_text(OPS)
    assert check() == 0


def test_add_noqa(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--add-noqa") == 0
    text = (project / "ops.py").read_text()
    assert "        ctx.y = y  # noqa: CL104\n        ctx.x = x  # noqa: CL101\n" in text
    assert (project / "clean.py").read_text() == CLEAN
    assert check() == 0
    assert check("--add-noqa") == 0
    assert (project / "ops.py").read_text() == text
    (project / "ops.py").write_text(text.replace("ctx.y = y", "y = y").replace("ctx.y", "1"))
    capsys.readouterr()
    assert check("--output-format", "concise") == 1
    assert places(capsys.readouterr().out)[0].endswith("CL001")


@pytest.mark.parametrize("option", ["-o", "--output-file", "--write-baseline"])
def test_no_report_replaces_source(project: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    before = (project / "ops.py").read_bytes()
    assert check(option, "ops.py") == 2
    assert "ops.py: is named like source code" in capsys.readouterr().err
    assert (project / "ops.py").read_bytes() == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("--fix", "--diff"),
        ("--add-noqa", "--write-baseline", "x"),
        ("--unsafe-fixes",),
        ("--watch", "-"),
    ],
)
def test_options_that_exclude_each_other(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert check(*arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert (project / "ops.py").read_text() == OPS


def test_an_excluded_file_that_is_named_is_skipped_where_that_is_forced(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("--extend-exclude", "ops.py", "ops.py") == 1
    capsys.readouterr()
    assert check("--extend-exclude", "ops.py", "--force-exclude", "ops.py") == 0
    assert capsys.readouterr().out == ""


def test_watch_runs_again_when_a_file_changes(project: Path) -> None:
    command = [sys.executable, "-m", "cachelint", "check", "--watch", "--output-format", "concise"]
    process = subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    timer = threading.Timer(30, process.kill)
    timer.start()
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline().startswith(PLACES[0])
        assert process.stdout.readline().startswith(PLACES[1])
        while not process.stderr.readline().startswith("watching"):
            pass
        time.sleep(0.1)
        (project / "ops.py").write_text("\n" + OPS)
        assert process.stdout.readline().startswith("ops.py:9:9: CL104")
    finally:
        timer.cancel()
        process.kill()
        process.wait()


def test_colour_only_where_it_is_wanted(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check()
    assert "\x1b" not in capsys.readouterr().out
    check("--color", "always")
    assert "\x1b[31m" in capsys.readouterr().out


def test_a_notebook_is_shown_by_cell(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "ops.py").unlink()
    lines = OPS.splitlines(keepends=True)
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# ops\n"]},
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": lines[:3]},
        {
            "cell_type": "code",
            "metadata": {},
            "outputs": [],
            "execution_count": None,
            "source": ["%time\n", *lines[3:]],
        },
    ]
    book = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (project / "ops.ipynb").write_text(json.dumps(book))
    assert check("--output-format", "concise") == 1
    shown = places(capsys.readouterr().out)
    number = shown[0].split("cell ")[0]
    assert number == "ops.ipynb:"
    assert check() == 1
    out = capsys.readouterr().out
    assert "\n6 |         ctx.y = y\n  |         ^^^^^\n" in out
    assert ":6:9: CL104" in out
    assert check("--output-format", "json") == 1
    assert [finding["cell"]["line"] for finding in json.loads(capsys.readouterr().out)["findings"]] == [6, 7]
    assert cli.run(["audit"]) == 0
    assert "ops.ipynb:cell " in capsys.readouterr().out
    assert cli.run(["explain", shown[0].removesuffix(":")]) == 0
    assert capsys.readouterr().out.startswith("Exp.y: SAVE\n")
