"""The compiled wheel says what the text says, heeds its time limit, and survives what is nested deeply."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FUNCTION = """import torch


class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = {expression}
        ctx.y = y
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.y
"""


def compilable() -> bool:
    """Whether this machine can build the compiled wheel."""
    if any(importlib.util.find_spec(name) is None for name in ("hatchling", "mypyc", "setuptools")):
        return False
    import hatch_build

    return hatch_build.possible()


pytestmark = pytest.mark.skipif(not compilable(), reason="needs hatchling, mypyc, setuptools, a C compiler and headers")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled wheel, unpacked. Built once, whichever of the test processes comes first."""
    out = tmp_path_factory.getbasetemp().parent / f"compiled-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    done = out / "done"
    try:
        out.mkdir()
    except FileExistsError:
        for _ in range(900):
            if done.exists():
                break
            time.sleep(1)
        assert done.exists(), "the process that builds the wheel did not finish"
        return out / "site"
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(out)!r}))"
    env = {**os.environ, "CACHELINT_COMPILE": "1"}
    run = subprocess.run([sys.executable, "-c", build], cwd=ROOT, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    name = run.stdout.split()[-1]
    assert not name.endswith("-none-any.whl"), "its tag must name the platform that it was compiled for"
    zipfile.ZipFile(out / name).extractall(out / "site")
    done.touch()
    return out / "site"


def python(site: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python with the compiled package."""
    env = {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1", "NO_COLOR": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True)


def test_every_module_of_the_list_is_compiled(site: Path, tmp_path: Path) -> None:
    import hatch_build

    names = [
        ".".join(part for part in ("cachelint", package, name) if part)
        for package, group in hatch_build.COMPILED.items()
        for name in group.split()
    ]
    script = f"import importlib\nfor name in {names!r}: print(importlib.import_module(name).__file__)"
    files = python(site, "-c", script, cwd=tmp_path).stdout.split()
    assert len(files) == len(names)
    assert [name for name in files if name.endswith(".py") or not name.startswith(str(site))] == []


def test_the_packed_tables_are_those_of_the_checkout(site: Path) -> None:
    from cachelint.data import load_tables

    for folder in ("dialects", "operators"):
        packed = json.loads((site / "cachelint" / "_rules" / f"{folder}.json").read_text())
        assert packed == load_tables(folder)
        assert list(packed) == list(load_tables(folder)), "the order decides which of two rows counts"


@pytest.mark.parametrize("folder", ["fixtures", "cachelint", "tests/data"])
@pytest.mark.parametrize("command", ["audit --format json --all", "check --output-format json --exit-zero --isolated"])
def test_it_says_what_the_text_says(site: Path, folder: str, command: str) -> None:
    arguments = ["-m", "cachelint", *command.split(), "--no-cache", folder]
    compiled = python(site, *arguments, cwd=ROOT)
    plain = python(ROOT, *arguments, cwd=ROOT)
    assert (compiled.returncode, compiled.stderr) == (plain.returncode, plain.stderr)
    assert json.loads(compiled.stdout) == json.loads(plain.stdout)


def test_fixes_are_the_same(site: Path) -> None:
    arguments = ["-m", "cachelint", "fix", "--diff", "--no-cache", "fixtures/legacy"]
    compiled = python(site, *arguments, cwd=ROOT)
    assert "save_for_backward" in compiled.stdout
    assert compiled.stdout == python(ROOT, *arguments, cwd=ROOT).stdout


def test_deep_nesting_is_no_crash(site: Path, tmp_path: Path) -> None:
    pieces = [" + x", ".real", ".abs()", "[0]", "-", "not ", "(", "[", "torch.abs(", "x if x else ", "lambda: "]
    for count in (300, 1_500, 9_000, 60_000):
        for number, piece in enumerate(pieces):
            middle = piece * count
            whole = f"x{middle}" if piece[0] in " ." or piece == "[0]" else f"{middle}x"
            closed = whole + {"(": ")", "[": "]", "torch.abs(": ")"}.get(piece, "") * count
            (tmp_path / f"deep_{count}_{number}.py").write_text(FUNCTION.format(expression=closed))
    run = python(site, "-m", "cachelint", "check", "--no-cache", "--output-format", "concise", "-j", "2", cwd=tmp_path)
    assert run.returncode in (0, 1, 3), (run.returncode, run.stderr[-500:])
    assert "Traceback" not in run.stderr
    assert "died" not in run.stdout + run.stderr, "a worker ran out of stack"


def test_the_time_limit_of_a_file_is_heeded(site: Path, tmp_path: Path) -> None:
    body = "".join(f"    if a > {i}:\n        a, b = b + a, [a, b, {i}]\n" for i in range(1_000))
    text = f"def long(a, b):\n{body}    return a\n\n\n" + FUNCTION.format(expression="long(x, x)")
    (tmp_path / "slow.py").write_text(text)
    script = (
        "import time\nfrom cachelint.runner import Options, run\nstart = time.perf_counter()\n"
        "report = run(['slow.py'], options=Options(jobs=1, use_cache=False, limit={limit}))\n"
        "print(round(time.perf_counter() - start, 3), *report.errors)"
    )
    whole = float(python(site, "-c", script.format(limit=60), cwd=tmp_path).stdout.split()[0])
    cut = python(site, "-c", script.format(limit=whole / 4), cwd=tmp_path)
    assert "gave up after" in cut.stdout, cut.stdout + cut.stderr
