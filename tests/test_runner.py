"""Runs from paths to a report, on a small stand-in for the engine."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from stub_engine import ENGINE

from cachelint.config import ConfigError, Configs
from cachelint.model import FileError
from cachelint.runner import Options, Report, run

LAYER = "class {0}(Function):\n    def forward(ctx, x): ...\n    def backward(ctx, g): ...\n"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHELINT_CACHE_DIR", str(tmp_path / ".cache"))


def _project(folder: Path, **files: str) -> Path:
    (folder / "pyproject.toml").touch()
    for name, text in files.items():
        path = folder / (name if "." in name else f"{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def _run(folder: Path, *paths: str, options: Options | None = None, **command_line: Any) -> Report:
    configs = Configs(str(folder), command_line)
    return run(paths or ["."], configs, options or Options(jobs=1), cwd=str(folder), engine=ENGINE)


POOL = Options(jobs=2, use_cache=False, pool_from=0, limit=30)


def test_a_report_has_everything_in_order(tmp_path: Path) -> None:
    _project(
        tmp_path,
        **{"b": LAYER.format("B"), "a": LAYER.format("A"), "p/c": LAYER.format("C") + LAYER.format("D"), "x": "("},
    )
    report = _run(tmp_path)
    assert report.files == ("a.py", "b.py", "p/c.py", "x.py")
    assert [(one.path, one.line, one.type) for one in report.findings] == [
        ("a.py", 1, "A"), ("b.py", 1, "B"), ("p/c.py", 1, "C"), ("p/c.py", 4, "D"),
    ]  # fmt: skip
    assert [(one.path, one.type) for one in report.types] == [
        ("a.py", "A"),
        ("b.py", "B"),
        ("p/c.py", "C"),
        ("p/c.py", "D"),
    ]
    assert report.types[0].fields[0].evidence[0].path == "a.py"
    assert [(one.path, one.line) for one in report.errors] == [("x.py", 1)]
    assert [result.path for result in report.results] == ["a.py", "b.py", "p/c.py", "x.py"]
    assert report.results[2].types == report.types[2:]
    assert report.source_lines("a.py")[0] == "class A(Function):"
    assert report.source_lines("none.py") == ()
    assert [name for name, _ in report.timings] == ["discover", "read", "analyse", "report"]


def test_processes_say_the_same_as_one(tmp_path: Path) -> None:
    _project(tmp_path, use="A3.apply(0)\n", bad="(", **{f"m{n}": LAYER.format(f"A{n}") for n in range(12)})
    alone, together = _run(tmp_path), _run(tmp_path, options=POOL)
    for name in ("files", "findings", "suppressed", "errors", "types"):
        assert getattr(alone, name) == getattr(together, name)


def test_processes_that_are_not_forked_say_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import torch\nclass {0}(torch.autograd.Function):\n" + LAYER.partition("\n")[2].replace(
        "...", "ctx.x = x", 1
    )
    _project(tmp_path, **{name: text.format(name.upper()) for name in "abc"})
    monkeypatch.setattr("cachelint.pool.METHOD", "spawn")
    configs = Configs(str(tmp_path))
    alone, together = (
        run(["."], configs, options, cwd=str(tmp_path)) for options in (Options(jobs=1, use_cache=False), POOL)
    )
    assert [one.type for one in alone.types] == ["A", "B", "C"]
    assert (together.types, together.findings, together.errors) == (alone.types, alone.findings, ())


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("RECURSE", "nested too deeply"),
        ("RAISE", "cachelint failed on this file, please report it: ValueError: two lines"),
        ("MEMORY", "out of memory"),
        ("HANG", "gave up after 1 s"),
    ],
)
@pytest.mark.parametrize("processes", [False, True])
def test_one_bad_file_is_one_line_and_the_rest_goes_on(
    tmp_path: Path, word: str, message: str, processes: bool
) -> None:
    _project(tmp_path, a=LAYER.format("A"), bad=LAYER.format("B") + f"# {word}\n", c=LAYER.format("C"))
    options = Options(jobs=2 if processes else 1, use_cache=True, pool_from=0, limit=1)
    report = _run(tmp_path, options=options)
    assert [one.path for one in report.findings] == ["a.py", "c.py"]
    (error,) = report.errors
    assert (error.path, error.line) == ("bad.py", 1)
    assert error.message.startswith(message) or message in error.message
    assert "\n" not in error.message
    assert report.exit_status() == 3
    assert _run(tmp_path, options=options).cached == 2  # a failure is tried again


def test_a_file_that_kills_its_process_is_one_line(tmp_path: Path) -> None:
    _project(tmp_path, a=LAYER.format("A"), bad=LAYER.format("B") + "# CRASH\n", c=LAYER.format("C"))
    report = _run(tmp_path, options=POOL)
    assert [one.path for one in report.findings] == ["a.py", "c.py"]
    assert report.errors == (FileError("bad.py", 1, "the process that worked on it died (signal 9)"),)


@pytest.mark.parametrize("use_cache", [False, True])
def test_in_a_large_project_only_what_matters_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_cache: bool
) -> None:
    _project(tmp_path, a=LAYER.format("A"), broken="(", judged="( # backward")
    options = Options(jobs=1, use_cache=use_cache)
    assert [one.path for one in _run(tmp_path, options=options).errors] == ["broken.py", "judged.py"]
    monkeypatch.setattr("cachelint.runner.PARSE_ALL_UP_TO", 10)
    for _ in range(2):
        assert [one.path for one in _run(tmp_path, options=options).errors] == ["judged.py"]
        named = _run(tmp_path, "broken.py", "judged.py", "a.py", options=options)
        assert [one.path for one in named.errors] == ["broken.py", "judged.py"]


def test_exit_statuses(tmp_path: Path) -> None:
    _project(tmp_path, clean="x = 1\n", bad=LAYER.format("A"), broken="(")
    assert _run(tmp_path, "clean.py").exit_status() == 0
    assert _run(tmp_path, "bad.py").exit_status() == 1
    assert _run(tmp_path, "bad.py").exit_status(fail_on_findings=False) == 0
    assert _run(tmp_path, "broken.py").exit_status() == 3
    assert _run(tmp_path).exit_status() == 3
    assert _run(tmp_path, "none.py", "bad.py").exit_status() == 3


def test_selection_suppression_and_per_file_ignores(tmp_path: Path) -> None:
    text = LAYER.format("A").replace(":\n", ":  # noqa: CL103\n", 1)
    _project(tmp_path, **{"a": text, "tests/b": LAYER.format("B"), "c": "x = 1  # noqa: CL103\n"})
    report = _run(tmp_path, **{"per-file-ignores": {"tests/*": ["CL103"]}})
    assert [(one.code, one.path) for one in report.findings] == [("CL001", "c.py")]
    assert [(one.code, one.path) for one in report.suppressed] == [("CL103", "a.py"), ("CL103", "tests/b.py")]
    everything = _run(tmp_path, select=["ALL"], ignore=["CL001"])
    assert [(one.code, one.path) for one in everything.findings] == [
        ("CL215", "a.py"), ("CL103", "tests/b.py"), ("CL215", "tests/b.py")
    ]  # fmt: skip


def test_a_comment_for_a_rule_that_is_off_is_not_unused(tmp_path: Path) -> None:
    _project(tmp_path, a=LAYER.format("A").replace(":\n", ":  # noqa: CL215\n", 1))
    assert [one.code for one in _run(tmp_path).findings] == ["CL103"]


def test_each_file_has_the_nearest_configuration(tmp_path: Path) -> None:
    _project(tmp_path, **{"a": LAYER.format("A"), "p/b": LAYER.format("B"), "q/c": LAYER.format("C")})
    (tmp_path / "p/cachelint.toml").write_text('ignore = ["CL1"]\n')
    (tmp_path / "q/cachelint.toml").write_text('unknown-storage = "host"\n')
    report = _run(tmp_path)
    assert [(one.path, one.message.rpartition(", ")[2]) for one in report.findings] == [
        ("a.py", "device"),
        ("q/c.py", "host"),
    ]
    (tmp_path / "q/cachelint.toml").write_text("nonsense = 1\n")
    with pytest.raises(ConfigError, match=r"^q/cachelint\.toml:1: unknown key"):
        _run(tmp_path)


def test_standard_input_and_editors_buffers(tmp_path: Path) -> None:
    _project(tmp_path, a="x = 1\n", use="A.apply(1)\n")
    text = LAYER.format("A").encode()
    for name in ("a.py", "new.py"):
        report = _run(tmp_path, "a.py", options=Options(jobs=1, overlay={str(tmp_path / name): text}))
        (finding,) = report.findings
        assert finding.path == name
        assert "use.py" in finding.message
        assert report.source_lines(name)[0] == "class A(Function):"
    assert (tmp_path / "a.py").read_text() == "x = 1\n"
    assert _run(tmp_path).findings == ()


def test_notebooks(tmp_path: Path) -> None:
    cells = [["%time\n", "x = 1"], LAYER.format("A").splitlines(keepends=True), ["def f(:"]]
    data = {"cells": [{"cell_type": "code", "source": cell} for cell in cells], "metadata": {}, "nbformat": 4}
    _project(tmp_path, **{"n.ipynb": json.dumps(data), "broken.ipynb": "{", "use.py": "A.apply(2)\n"})
    report = _run(tmp_path)
    (finding,) = report.findings
    assert (finding.path, report.cell("n.ipynb", finding.line)) == ("n.ipynb", (2, 1))
    assert report.source_lines("n.ipynb")[finding.line - 1] == "class A(Function):"
    assert report.cell("use.py", 1) is None
    assert [(one.path, one.message.split(":")[0]) for one in report.errors] == [
        ("broken.ipynb", "not a notebook"), ("n.ipynb", "cell 3, line 1"),
    ]  # fmt: skip


def test_one_file_says_what_the_whole_run_says_of_it(tmp_path: Path) -> None:
    files = {f"p{n % 3}/m{n}": LAYER.format(f"A{n}") + f"A{n - 1}.apply(1)\n" for n in range(9)}
    _project(tmp_path, **files)
    whole = _run(tmp_path)
    for name in files:
        alone = _run(tmp_path, f"{name}.py", options=Options(jobs=1, use_cache=False))
        assert alone.findings == tuple(one for one in whole.findings if one.path == f"{name}.py")


def test_paths_are_relative_to_the_working_directory(tmp_path: Path) -> None:
    _project(tmp_path, **{"p/a": LAYER.format("A"), "q/b": LAYER.format("B")})
    report = _run(tmp_path / "p", ".", "../q")
    assert [one.path for one in report.findings] == ["../q/b.py", "a.py"]
    assert report.types[0].fields[0].evidence[0].path in ("../q/b.py", "a.py")


def test_progress_is_told_only_when_it_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _project(tmp_path, **{f"m{n}": "# SLEEP backward\n" for n in range(4)})
    calls: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        calls.append((done, total))

    _run(tmp_path, options=Options(jobs=1, use_cache=False, progress=progress))
    assert calls == []
    monkeypatch.setattr("cachelint.runner.PROGRESS_AFTER", 0.06)
    _run(tmp_path, options=Options(jobs=1, use_cache=False, progress=progress))
    assert calls
    assert calls[-1] == (4, 4)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_the_collector_is_left_as_it_was(tmp_path: Path) -> None:
    _project(tmp_path, a=LAYER.format("A"), bad="# RAISE backward")
    assert gc.isenabled()
    _run(tmp_path)
    assert gc.isenabled()
    gc.disable()
    try:
        _run(tmp_path)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_warm_run_imports_no_parser(tmp_path: Path) -> None:
    """What makes warm runs fast: nothing of the engine, no libcst, no process pool."""
    _project(tmp_path, a="x = 1\n", b="def backward(g): ...\n")
    code = (
        "import sys; from cachelint.runner import run; r = run(['.']); print(r.cached, "
        "sorted({'cachelint.engine', 'libcst', 'multiprocessing', 'tomllib', 'pathspec', 'click'} & set(sys.modules)))"
    )
    for expected in ("0 ", "2 []\n"):
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        assert done.stdout.startswith(expected)
