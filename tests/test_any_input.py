"""Whatever lies in a project: one clear line where something is wrong, no traceback, no hang; the rest goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unprivileged import open_folder, unprivileged

from cachelint.config import Configs
from cachelint.runner import Options, Report, run

GOOD = """\
import torch


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.y = y
        return y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.y
"""


def _run(folder: Path, *paths: str, jobs: int = 1) -> Report:
    options = Options(jobs=jobs, use_cache=False, pool_from=0 if jobs > 1 else 1 << 40)
    return run(paths or ["."], Configs(str(folder), isolated=True), options, cwd=str(folder))


def _only(folder: Path, raw: bytes, name: str = "bad.py") -> tuple[Report, list[str]]:
    """A project of one file beside a good one; the report and the errors."""
    (folder / "good.py").write_text(GOOD)
    (folder / name).write_bytes(raw)
    report = _run(folder)
    assert [one.type for one in report.types if one.path == "good.py"] == ["Exp"]
    assert [one.path for one in report.errors] == [name] * len(report.errors)
    assert report.exit_status(fail_on_findings=False) == (3 if report.errors else 0)
    for error in report.errors:
        assert "\n" not in error.message
        assert "Traceback" not in error.message
        assert "please report" not in error.message
        assert error.line >= 1
    return report, [one.message for one in report.errors]


NEWER = {
    "3.8 walrus, positional-only": "def f(a, /, *, b): return (c := a)",
    "3.9 relaxed decorators": "@x[0].y\ndef f(): ...",
    "3.10 match": "match x:\n    case [1, *_] | {'a': 2, **r}: pass\n    case P(a=b) if b: pass",
    "3.10 with": "with (open(a) as b, open(c) as d,): pass",
    "3.11 except*": "try: pass\nexcept* (A, B) as e: pass",
    "3.11 star index": "a[*b] = 1",
    "3.12 generics": "class C[T: int, *Ts, **P]:\n    def f[U](self, x: U) -> T: ...",
    "3.12 type": "type Pair[T] = tuple[T, T]",
    "3.12 strings": 's = f"{d["k"]} {\'\\n\'.join(x)} {f"{y}"}"',
    "3.13 defaults": "class C[T = int, *Ts = *tuple[int, ...]]: ...",
    "3.14 except": "try: pass\nexcept A, B: pass",
    "3.14 templates": "s = t\"{x!r:>{w}} {d['k']}\"",
}


@pytest.mark.parametrize("version", NEWER)
def test_python_3_8_to_3_14(tmp_path: Path, version: str) -> None:
    text = GOOD + NEWER[version] + "\n"
    _, errors = _only(tmp_path, text.encode())
    assert errors == []
    # Inside the very methods that matter, too.
    body = "".join(f"        {line}\n" for line in NEWER[version].split("\n"))
    report, errors = _only(tmp_path, GOOD.replace("        ctx.y = y\n", body + "        ctx.y = y\n").encode())
    assert errors == []
    (kind,) = [one for one in report.types if one.path == "bad.py" and one.type == "Exp"]
    assert [one.field for one in kind.fields] == ["y"]
    # And in a file that holds nothing to judge.
    assert _only(tmp_path, NEWER[version].encode())[1] == []


BROKEN = {
    "python 2": (b"print 'backward'\n", "cannot be parsed"),
    "python 2, nothing to judge": (b"try:\n    exec 'x' in d\nexcept E, e:\n    raise E, 'x'\n", "cannot be parsed"),
    "bad syntax": (b"def backward(:\n", "cannot be parsed"),
    "unclosed": (b"x = (  # backward\n", "cannot be parsed"),
    "bad indentation": (b"def backward():\n        x\n    y\n", "cannot be parsed"),
    "mixed tabs": (b"if backward:\n\tx\n        y\n", "cannot be parsed"),
    "null byte": (b"backward = '\0'\n", "null byte"),
    "latin-1 without a cookie": (b"backward = '\xe9'\n", "not UTF-8"),
    "utf-16": ("backward = 1\n".encode("utf-16"), "UTF-16"),
    "unknown encoding": (b"# coding: klingon\nbackward = 1\n", "unknown encoding"),
    "binary": (bytes(range(256)) * 40, "not UTF-8"),
    "merge conflict": (b"<<<<<<< HEAD\nbackward = 1\n=======\n>>>>>>> x\n", "cannot be parsed"),
    "jinja": (b"{% if backward %}\nx = 1\n{% endif %}\n", "cannot be parsed"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_files_are_one_line(tmp_path: Path, kind: str) -> None:
    raw, word = BROKEN[kind]
    report, errors = _only(tmp_path, raw)
    assert len(errors) == 1
    assert word in f"{errors[0]}, line {report.errors[0].line}"


FINE = {
    "empty": b"",
    "blank": b"\n\n\f\n",
    "byte order mark": b"\xef\xbb\xbf" + GOOD.encode(),
    "latin-1 with a cookie": b"# -*- coding: latin-1 -*-\n# \xe9\n" + GOOD.encode(),
    "CRLF": GOOD.replace("\n", "\r\n").encode(),
    "CR": GOOD.replace("\n", "\r").encode(),
    "mixed newlines": GOOD.replace("\n", "\r\n", 7).encode(),
    "form feeds": GOOD.replace("\nclass", "\f\nclass").replace("\n\n    @", "\n\f\n    @").encode(),
    "no newline at the end": GOOD.rstrip().encode(),
    "tabs": GOOD.replace("    ", "\t").encode(),
    "line separators in strings": GOOD.replace("class", "s = '\u2028\x1c\x85'\nclass").encode(),
    "names in other scripts": GOOD.replace("y", "длина").encode(),
    "a shebang": b"#!/usr/bin/env python\n" + GOOD.encode(),
}


@pytest.mark.parametrize("kind", FINE)
def test_unusual_files_are_judged(tmp_path: Path, kind: str) -> None:
    report, errors = _only(tmp_path, FINE[kind])
    assert errors == []
    good = [one for one in report.types if one.path == "good.py"]
    bad = [one for one in report.types if one.path == "bad.py"]
    if b"Exp" not in FINE[kind]:
        assert bad == []
        return
    field = bad[0].fields[0]
    assert (field.cls, field.storage, field.rule) == (
        good[0].fields[0].cls,
        good[0].fields[0].storage,
        good[0].fields[0].rule,
    )
    line = report.source_lines("bad.py")[field.line - 1]
    assert line.strip().startswith("ctx.")


def _nested(kind: str, depth: int) -> str:
    return {
        "parentheses": "x = " + "(" * depth + "backward" + ")" * depth,
        "lists": "x = " + "[" * depth + "backward" + "]" * depth,
        "sums": "backward = " + "+".join("a" * depth),
        "unary": "backward = " + "-" * depth + "x",
        "attributes": "backward = x" + ".a" * depth,
        "calls": "backward = x" + "()" * depth,
        "lambdas": "backward = " + "lambda: " * depth + "0",
        "conditions": "backward = " + "a if b else " * depth + "c",
        "blocks": "".join(" " * level + "if backward:\n" for level in range(depth)) + " " * depth + "pass",
        "elif": "if backward: pass\n" + "elif a: pass\n" * depth,
        "functions": "".join(" " * level + "def backward():\n" for level in range(depth)) + " " * depth + "pass",
        "strings": "backward = " + "f'{" * (depth // 100) + "x" + "}'" * (depth // 100),
        "comparisons": "backward = " + "<".join("a" * depth),
        "subscripts": "backward = x" + "[0]" * depth,
        "dictionaries": "backward = " + "{0:" * depth + "0" + "}" * depth,
    }[kind]


KINDS = [
    "parentheses",
    "lists",
    "sums",
    "unary",
    "attributes",
    "calls",
    "lambdas",
    "conditions",
    "blocks",
    "elif",
    "functions",
]
KINDS += ["strings", "comparisons", "subscripts", "dictionaries"]


@pytest.mark.parametrize("depth", [50, 500, 5_000])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inside", [False, True])
def test_deep_nesting(tmp_path: Path, kind: str, depth: int, inside: bool) -> None:
    text = _nested(kind, min(depth, 1_000) if kind in ("blocks", "functions") else depth)
    if inside:  # in a forward, where the engine follows every expression
        body = "".join(f"        {line}\n" for line in text.replace("backward", "v").split("\n"))
        text = GOOD.replace("        ctx.y = y\n", body + "        ctx.y = y\n")
    start = time.monotonic()
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(text)
    report = _run(tmp_path, jobs=2)  # in a process of its own: what the C stack does not survive is one line as well
    assert time.monotonic() - start < 60
    assert "Exp" in [one.type for one in report.types if one.path == "good.py"]
    assert len(report.errors) <= 1
    for error in report.errors:
        assert error.path == "bad.py"
        assert "please report" not in error.message
        assert "died" not in error.message, error.message


@pytest.mark.parametrize(
    "line", ["x = f(a, b)[0] + c.d  # backward\n", "backward = [\n", "    'x',\n", "def backward(self, g): return g\n"]
)
def test_a_hundred_thousand_lines(tmp_path: Path, line: str) -> None:
    text = GOOD + ("x = [\n" + line * 100_000 + "]\n" if line.startswith(" ") else line * 100_000)
    start = time.monotonic()
    report, errors = _only(tmp_path, text.encode())
    assert time.monotonic() - start < 60
    assert len(errors) == (line == "backward = [\n")
    if not errors:
        assert [one.type for one in report.types if one.path == "bad.py"] == ["Exp"]


def test_a_long_class_and_a_long_line(tmp_path: Path) -> None:
    body = "".join(f"        v{n} = x + {n}\n" for n in range(5_000))
    report, errors = _only(tmp_path, GOOD.replace("        y = x.exp()\n", body + "        y = x.exp()\n").encode())
    assert errors == []
    assert [one.field for one in report.types[0].fields] == ["y"]
    _, errors = _only(tmp_path, (GOOD + "t = (" + "1, " * 200_000 + ")\n").encode())
    assert errors == []


def test_names_that_are_unusual(tmp_path: Path) -> None:
    (tmp_path / "x.py").mkdir()
    names = ["x.py/inner.py", "a b.py", "ü.py", "-flag.py", "new\nline.py", "'quote\".py", "{brace}.py"]
    raw = os.fsdecode(b"\xff\xfe.py")
    for name in [*names, raw]:
        (tmp_path / name).write_text(GOOD)
    report = _run(tmp_path)
    assert report.errors == ()
    assert sorted(one.path for one in report.types) == sorted([*names, raw])
    json.dumps([one.path for one in report.types])


def test_links_pipes_and_folders(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "broken.py").symlink_to("nowhere.py")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "down").symlink_to(".")
    os.mkfifo(tmp_path / "pipe.py")
    report = _run(tmp_path)
    assert [one.path for one in report.types] == ["good.py"]
    assert [one.path for one in report.errors] == ["broken.py", "loop.py", "pipe.py"]
    assert [one.path for one in _run(tmp_path, "none.py", "down", "good.py").errors] == [
        "down/broken.py", "down/loop.py", "down/pipe.py", "none.py",
    ]  # fmt: skip


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
def test_unreadable_files_and_folders() -> None:
    with open_folder() as folder:
        (folder / "good.py").write_text(GOOD)
        (folder / "shut.py").write_text(GOOD)
        (folder / "locked").mkdir()
        (folder / "locked/a.py").write_text(GOOD)
        _run(folder)  # imports the engine while that is allowed
        (folder / "shut.py").chmod(0)
        (folder / "locked").chmod(0)
        with unprivileged():
            report = _run(folder)
            named = _run(folder, "shut.py")
        assert [one.path for one in report.types] == ["good.py"]
        assert [(one.path, one.message.split(":")[0]) for one in report.errors] == [
            ("locked", "permission denied"), ("shut.py", "permission denied"),
        ]  # fmt: skip
        assert [one.path for one in named.errors] == ["shut.py"]


def test_a_file_that_goes_while_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cachelint import runner

    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "gone.py").write_text(GOOD)
    original = runner.read_bytes

    def read(path: str) -> bytes:
        if path.endswith("gone.py"):
            raise FileNotFoundError(2, "gone", path)
        return original(path)

    monkeypatch.setattr(runner, "read_bytes", read)
    report = _run(tmp_path)
    assert [(one.path, one.message) for one in report.errors] == [("gone.py", "no such file")]
    assert [one.path for one in report.types] == ["good.py"]


def test_notebooks_good_and_broken(tmp_path: Path) -> None:
    def notebook(*sources: str) -> bytes:
        cells = [{"cell_type": "code", "source": text.splitlines(keepends=True)} for text in sources]
        return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()

    report, errors = _only(tmp_path, notebook("%matplotlib inline\n!ls", GOOD, "x?"), "n.ipynb")
    assert errors == []
    (kind,) = [one for one in report.types if one.path == "n.ipynb"]
    assert report.cell("n.ipynb", kind.line) == (2, 4)
    report, errors = _only(tmp_path, notebook("x = (", GOOD), "n.ipynb")
    assert len(errors) == 1
    assert "cell 1, line 1" in errors[0]
    assert "n.ipynb" in [one.path for one in report.types]
    for raw in (b"", b"{}", b"[]", b"\xff", b'{"cells": [{"cell_type": "code", "source": [1]}]}', b"[" * 10_000):
        assert len(_only(tmp_path, raw, "n.ipynb")[1]) == 1


_BITS = st.sampled_from(
    [
        b"class A(torch.autograd.Function):\n",
        b"    def forward(ctx, x):\n",
        b"        ctx.x = x\n",
        b"    def backward(ctx, g):\n",
        b"        return g * ctx.x\n",
        b"\r\n",
        b"\f",
        b"\0",
        b"\xff",
        b"(",
        b")",
        b"'''",
        b"'",
        b"#",
        b"\\\n",
        b"import torch\n",
        b"@staticmethod\n",
        b"    ",
        b"\t",
        b"lambda: ",
        b":",
        b"=",
        b"match x:\n",
        b"  # noqa: CL103",
        b"\xef\xbb\xbf",
        b"f'{",
        b"}'",
    ]
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(_BITS, st.binary(max_size=3)), max_size=20).map(b"".join))
def test_any_bytes(tmp_path: Path, raw: bytes) -> None:
    _only(tmp_path, raw)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_to_a_good_file(tmp_path: Path, data: st.DataObject) -> None:
    lines = GOOD.encode().splitlines(keepends=True)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        lines[at] = data.draw(st.one_of(_BITS, st.sampled_from(lines), st.just(b"")))
    _only(tmp_path, b"".join(lines))


def test_the_recursion_limit_is_left_alone(tmp_path: Path) -> None:
    before = sys.getrecursionlimit()
    _only(tmp_path, _nested("sums", 5_000).encode())
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize(
    "chain", ["x" + " + x" * 600, "x" + ".abs()" * 400, "-" * 600 + "x", "x if x.a else " * 500 + "x"]
)
def test_long_chains_are_read(tmp_path: Path, chain: str) -> None:
    """Recursion deeper than Python's own limit, through the command."""
    text = (
        "import torch\n\n\nclass F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        f"        y = {chain}\n        ctx.y = y\n        return y\n\n    @staticmethod\n"
        "    def backward(ctx, grad):\n        return grad * ctx.y\n"
    )
    (tmp_path / "long.py").write_text(text)
    command = [sys.executable, "-m", "cachelint", "check", "--no-cache", "--output-format", "concise", "long.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "`y`" in done.stdout
