"""The fix command, and check --fix: what is written, what is said, what is left alone."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

from cachelint import cli
from cachelint.fix import api

BAD = """\
import torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor):
        ctx.x = x  # the input
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.x
"""
GOOD = """\
import torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor):
        # the input
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g * x
"""
UNSURE = """\
import torch


class Layer:
    # no contract is configured
    def forward(self, x: torch.Tensor):
        self.y = torch.softmax(x, -1)
        return self.y * 2

    def backward(self, grad):
        return grad * self.y
"""
REFUSED = BAD.replace("return 2 * g * ctx.x", "return ctx.rule(ctx, g)")


@dataclass(frozen=True)
class Done:
    """A finished command."""

    exit_code: int
    stdout: str
    stderr: str


def run(*args: str, stdin: str = "") -> Done:
    out, err = io.StringIO(), io.StringIO()
    source = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    with redirect_stdout(out), redirect_stderr(err), mock.patch("sys.stdin", source):
        code = cli.run(args)
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    return tmp_path


def test_fix_rewrites_the_file_and_says_so(folder: Path) -> None:
    (folder / "a.py").write_text(BAD)
    done = run("fix", "a.py")
    assert done.exit_code == 0
    assert (folder / "a.py").read_text() == GOOD
    assert done.stdout == "a.py:7: CL101 `x` fixed: move `x` to save_for_backward\n"
    assert "fixed 1 finding in 1 file" in done.stderr
    again = run("fix", "a.py")
    assert again.exit_code == 0
    assert again.stdout == ""
    assert (folder / "a.py").read_text() == GOOD


def test_diff_shows_and_changes_nothing(folder: Path) -> None:
    (folder / "a.py").write_text(BAD)
    done = run("fix", "--diff", "a.py")
    assert done.exit_code == 1
    assert "-        return 2 * g * ctx.x\n" in done.stdout
    assert "+        (x,) = ctx.saved_tensors\n" in done.stdout
    assert done.stdout.startswith("--- a/a.py\n+++ b/a.py\n")
    assert (folder / "a.py").read_text() == BAD
    (folder / "a.py").write_text(GOOD)
    clean = run("fix", "--diff", "a.py")
    assert (clean.exit_code, clean.stdout) == (0, "")


def test_check_tells_whether_there_is_something_to_fix(folder: Path) -> None:
    (folder / "a.py").write_text(BAD)
    done = run("fix", "--check", "a.py")
    assert done.exit_code == 1
    assert "would fix" in done.stdout
    assert (folder / "a.py").read_text() == BAD
    (folder / "a.py").write_text(GOOD)
    assert run("fix", "--check", "a.py").exit_code == 0


def test_a_refusal_has_its_place_and_its_reason(folder: Path) -> None:
    (folder / "a.py").write_text(REFUSED)
    done = run("fix", "a.py")
    assert done.exit_code == 1
    assert done.stdout.startswith("a.py:7: CL101 `x` refused: `ctx` is handed to code that can't be followed (line 12)")
    assert "1 refused (1 ctx escapes)" in done.stderr
    assert (folder / "a.py").read_text() == REFUSED


def test_unsafe_fixes_are_only_made_on_demand(folder: Path) -> None:
    (folder / "a.py").write_text(UNSURE)
    done = run("fix", "a.py")
    assert done.exit_code == 1
    assert "left: the fix is unsafe, since" in done.stdout
    assert "1 more with --unsafe" in done.stderr
    assert (folder / "a.py").read_text() == UNSURE
    forced = run("fix", "--unsafe", "a.py")
    assert forced.exit_code == 0
    assert "fixed (unsafe)" in forced.stdout
    assert "self.save_for_backward(self.y)" in (folder / "a.py").read_text()


def test_select_and_ignore_say_what_is_fixed(folder: Path) -> None:
    (folder / "a.py").write_text(BAD)
    assert run("fix", "--ignore", "CL101", "a.py").exit_code == 0
    assert run("fix", "--select", "CL102", "a.py").exit_code == 0
    assert (folder / "a.py").read_text() == BAD
    assert run("fix", "--select", "CL101", "a.py").exit_code == 0
    assert (folder / "a.py").read_text() == GOOD


def test_suppressed_findings_are_not_fixed(folder: Path) -> None:
    text = BAD.replace("# the input", "# noqa: CL101")
    (folder / "a.py").write_text(text)
    assert run("fix", "a.py").exit_code == 0
    assert (folder / "a.py").read_text() == text


def test_standard_input_comes_out_fixed(folder: Path) -> None:
    done = run("fix", "-", stdin=BAD)
    assert (done.exit_code, done.stdout) == (0, GOOD)
    clean = run("fix", "-", stdin=GOOD)
    assert (clean.exit_code, clean.stdout) == (0, GOOD)


@pytest.mark.parametrize(
    ("raw", "expected", "status"),
    [
        (b"x = 1\0\n", b"x = 1\0\n", 3),
        (b"s = '\xff'\n", b"s = '\xff'\n", 3),
        (b"def (:\r\n", b"def (:\r\n", 3),
        (b"", b"", 0),
        (b"\xef\xbb\xbf" + BAD.encode(), b"\xef\xbb\xbf" + GOOD.encode(), 0),
        (b"# coding: latin-1\n# \xe9\n" + BAD.encode(), b"# coding: latin-1\n# \xe9\n" + GOOD.encode(), 0),
        (BAD.replace("\n", "\r\n").encode(), GOOD.replace("\n", "\r\n").encode(), 0),
    ],
)
def test_standard_input_keeps_its_bytes(folder: Path, raw: bytes, expected: bytes, status: int) -> None:
    """What can't be read comes out as it went in: an editor replaces its buffer by the output."""
    done = subprocess.run([sys.executable, "-m", "cachelint", "fix", "-"], input=raw, capture_output=True, cwd=folder)
    assert (done.returncode, done.stdout) == (status, expected)
    assert b"Traceback" not in done.stderr


def test_a_notebook_on_standard_input_comes_out_as_one(folder: Path) -> None:
    cell = {"cell_type": "code", "metadata": {}, "execution_count": 1, "outputs": [], "source": BAD.splitlines(True)}
    notebook = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    done = run("fix", "-", "--stdin-filename", "a.ipynb", stdin=notebook)
    assert "".join(json.loads(done.stdout)["cells"][0]["source"]).rstrip("\n") == GOOD.rstrip("\n")


def test_check_fix_reports_what_is_left(folder: Path) -> None:
    (folder / "a.py").write_text(BAD)
    (folder / "b.py").write_text(REFUSED)
    done = run("check", "--fix", "--output-format", "concise", ".")
    assert done.exit_code == 1
    assert "a.py" not in done.stdout
    assert "b.py:7" in done.stdout
    assert (folder / "a.py").read_text() == GOOD


def test_check_diff_shows_the_safe_fixes(folder: Path) -> None:
    (folder / "a.py").write_text(BAD)
    (folder / "b.py").write_text(UNSURE)
    done = run("check", "--diff", ".")
    assert "+++ b/a.py" in done.stdout
    assert "+++ b/b.py" not in done.stdout
    assert "+++ b/b.py" in run("check", "--diff", "--unsafe-fixes", ".").stdout


def test_check_announces_what_fix_does(folder: Path) -> None:
    (folder / "a.py").write_text(BAD)
    (folder / "b.py").write_text(UNSURE)
    (folder / "c.py").write_text(REFUSED)
    found = json.loads(run("check", "--select", "CL1", "--output-format", "json", ".").stdout)["findings"]
    notes = {finding["path"]: finding["fix"] and finding["fix"]["applicability"] for finding in found}
    assert notes == {"a.py": "safe", "b.py": "unsafe", "c.py": None}


@pytest.mark.parametrize(
    ("keys", "expected"), [("a\n", GOOD), ("e\ny\n", GOOD), ("s\n", BAD), ("q\n", BAD), ("", BAD), ("?\nn\n", BAD)]
)
def test_interactive_asks_about_each_change(folder: Path, keys: str, expected: str) -> None:
    (folder / "a.py").write_text(BAD)
    done = run("fix", "--interactive", "a.py", stdin=keys)
    assert (folder / "a.py").read_text() == expected
    assert "+        (x,) = ctx.saved_tensors" in done.stdout
    if keys.startswith("e"):
        assert "parameter `x` is annotated torch.Tensor" in done.stderr


def test_interactive_quit_keeps_what_was_accepted(folder: Path) -> None:
    (folder / "a.py").write_text(BAD)
    (folder / "b.py").write_text(BAD)
    run("fix", "--interactive", ".", stdin="a\nq\n")
    assert (folder / "a.py").read_text() == GOOD
    assert (folder / "b.py").read_text() == BAD


def test_modes_that_exclude_each_other(folder: Path) -> None:
    (folder / "a.py").write_text(BAD)
    assert run("fix", "--interactive", "--diff", "a.py").exit_code == 2
    assert run("fix", "--interactive", "-").exit_code == 2


# ---- files


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\xef\xbb\xbf" + BAD.encode(), b"\xef\xbb\xbf" + GOOD.encode()),
        (BAD.replace("\n", "\r\n").encode(), GOOD.replace("\n", "\r\n").encode()),
        (
            ("# -*- coding: latin-1 -*-\n" + BAD.replace("the input", "é")).encode("latin-1"),
            ("# -*- coding: latin-1 -*-\n" + GOOD.replace("the input", "é")).encode("latin-1"),
        ),
        (BAD.replace("    ", "\t").encode(), GOOD.replace("    ", "\t").encode()),
        (BAD.rstrip("\n").encode(), GOOD.rstrip("\n").encode()),
        (("x = 'é𝒳'; " + "y = 1\n" + BAD).encode(), ("x = 'é𝒳'; " + "y = 1\n" + GOOD).encode()),
    ],
    ids=["bom", "crlf", "latin-1", "tabs", "no newline at the end", "wide characters"],
)
def test_bytes_outside_the_change_stay(folder: Path, before: bytes, after: bytes) -> None:
    path = folder / "a.py"
    path.write_bytes(before)
    assert run("fix", "a.py").exit_code == 0
    assert path.read_bytes() == after


def test_the_mode_stays(folder: Path) -> None:
    path = folder / "a.py"
    path.write_text(BAD)
    path.chmod(0o751)
    run("fix", "a.py")
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert path.read_text() == GOOD
    assert os.listdir(folder) == sorted(["a.py", "pyproject.toml"]) or {"a.py", "pyproject.toml"} <= set(
        os.listdir(folder)
    )


def test_a_link_stays_a_link(folder: Path) -> None:
    (folder / "real").mkdir()
    (folder / "real" / "a.txt").write_text(BAD)
    (folder / "a.py").symlink_to(folder / "real" / "a.txt")
    run("fix", "a.py")
    assert (folder / "a.py").is_symlink()
    assert (folder / "real" / "a.txt").read_text() == GOOD


def test_a_file_that_changed_meanwhile_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "a.py"
    path.write_text(BAD)
    other = BAD + "# somebody else was here\n"
    real = api.write_back

    def late(source, text):  # type: ignore[no-untyped-def]
        path.write_text(other)
        return real(source, text)

    monkeypatch.setattr(api, "write_back", late)
    done = run("fix", "a.py")
    assert done.exit_code == 3
    assert "changed since it was read" in done.stderr
    assert path.read_text() == other


def test_a_file_that_fails_does_not_stop_the_others(folder: Path) -> None:
    (folder / "a.py").write_text("def broken(:\n")
    (folder / "b.py").write_text(BAD)
    done = run("fix", ".")
    assert done.exit_code == 3
    assert "a.py:1: cannot be parsed" in done.stderr
    assert (folder / "b.py").read_text() == GOOD


def test_a_fix_that_does_not_hold_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixed text is linted before it is written."""
    (folder / "a.py").write_text(BAD)
    monkeypatch.setattr("cachelint.fix.rewrite.rewrite", lambda text, edits, claims=(): text + "\n# nothing\n")
    done = run("fix", "a.py")
    assert done.exit_code == 1
    assert "would still be reported" in done.stdout
    assert (folder / "a.py").read_text() == BAD


def test_a_remedy_that_crashes_takes_nothing_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*args: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("cachelint.fix.remedies.functions.plan", crash)
    (folder / "a.py").write_text(BAD)
    done = run("fix", "--no-cache", "a.py")
    assert "please report it" in done.stdout
    assert (folder / "a.py").read_text() == BAD
    assert "CL101" in run("check", "--no-cache", "--output-format", "concise", "a.py").stdout


def test_notebook_cells_are_fixed(folder: Path) -> None:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Title\n"]},
        {
            "cell_type": "code",
            "metadata": {},
            "execution_count": 1,
            "outputs": [],
            "source": BAD.splitlines(keepends=True),
        },
        {"cell_type": "code", "metadata": {}, "execution_count": 2, "outputs": [], "source": ["print(1)"]},
    ]
    path = folder / "a.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1))
    assert run("fix", "a.ipynb").exit_code == 0
    after = json.loads(path.read_text())
    assert "".join(after["cells"][1]["source"]).rstrip("\n") == GOOD.rstrip("\n")
    assert after["cells"][0] == cells[0]
    assert after["cells"][2] == cells[2]


def test_two_families_of_a_file_are_fixed_in_one_go(folder: Path) -> None:
    (folder / "a.py").write_text(BAD + "\n\n" + BAD.replace("import torch\n\n\n", "").replace("Square", "Other"))
    done = run("fix", "a.py")
    assert "fixed 2 findings in 1 file" in done.stderr


@pytest.mark.parametrize("depth", [60, 400, 800])
def test_deep_nesting_is_fixed_or_refused_and_the_rest_goes_on(folder: Path, depth: int) -> None:
    (folder / "a.py").write_text(BAD.replace("2 * g * ctx.x", "g * ctx.x" + " + g" * depth))
    (folder / "b.py").write_text(BAD)
    done = run("fix", ".")
    assert (folder / "b.py").read_text() == GOOD
    compile((folder / "a.py").read_bytes(), "a.py", "exec")
    assert done.exit_code == 0 or "a.py:7: CL101 `x` refused: " in done.stdout or "a.py:1: " in done.stderr


@pytest.mark.parametrize("read", ["ctx.x", "getattr(ctx, 'x')", "2 * ctx.x"])
@pytest.mark.parametrize("method", ["forward", "backward"])
def test_what_is_added_in_place_is_read_anew(folder: Path, read: str, method: str) -> None:
    """`y += ctx.x` reads the attribute; only on the left of `+=` is it written as well."""
    at = {"forward": "        return x * x\n", "backward": "        return 2 * g * ctx.x\n"}[method]
    name = {"forward": "y = x * x", "backward": "y = 2 * g * ctx.x"}[method]
    changed = f"        {name}\n        y += {read}\n        return y\n"
    (folder / "a.py").write_text(BAD.replace(at, changed))
    assert run("fix", "a.py").exit_code == 0
    text = (folder / "a.py").read_text()
    assert "ctx.x" not in text
    assert "getattr" not in text
    assert "y += " in text


def test_a_crash_on_one_file_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = api.fix_text

    def crash(source: object, *args: object, **options: object) -> object:
        if source.path == "a.py":  # type: ignore[attr-defined]
            raise ZeroDivisionError("oh")
        return real(source, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(api, "fix_text", crash)
    for name in ("a.py", "b.py"):
        (folder / name).write_text(BAD)
    done = run("fix", ".")
    assert done.exit_code == 3
    assert "a.py:1: cachelint failed to fix this file, please report it: ZeroDivisionError: oh" in done.stderr
    assert (folder / "b.py").read_text() == GOOD


@pytest.mark.skipif(shutil.which("patch") is None, reason="no patch on this system")
@pytest.mark.parametrize("blank", ["\f", "\x0b", "\x1c", "\u2028", "\r"])
def test_patch_takes_the_diff(folder: Path, blank: str) -> None:
    """Only LF ends a line of a diff, whatever else str.splitlines takes for an end; and names may have blanks."""
    before = BAD.replace("# the input", f"# the{blank}#input") + f"# {blank}#\n"
    (folder / "a b.py").write_bytes(before.encode())
    diff = run("fix", "--diff", "a b.py").stdout
    subprocess.run(["patch", "-p1", "--binary"], input=diff.encode(), check=True, capture_output=True, cwd=folder)
    patched = (folder / "a b.py").read_bytes()
    assert patched != before.encode()
    (folder / "a b.py").write_bytes(before.encode())
    assert run("fix", "a b.py").exit_code == 0
    assert (folder / "a b.py").read_bytes() == patched


UNUSED = """\
# cachelint: file-ignore[CL105]
a = 1  # noqa: CL103, E501
# cachelint: ignore[CL104] an old reason
b = 2  # cachelint: ignore[CL104] another
"""
LEFT = "a = 1  # noqa: E501\nb = 2\n"


def test_unused_suppressions_go_with_the_fix(folder: Path) -> None:
    text = BAD.replace("return x * x\n", "return x * x  # noqa: CL102\n")
    assert text != BAD
    (folder / "a.py").write_text(UNUSED + text)
    assert run("fix", "--check", "a.py").exit_code == 1
    done = run("fix", "a.py")
    assert done.exit_code == 0
    assert (folder / "a.py").read_text() == LEFT + GOOD
    assert [line.split(": ")[1].split(" ")[0] for line in done.stdout.splitlines()].count("CL001") == 5
    assert "a.py:2: CL001 fixed: remove the codes that do nothing\n" in done.stdout
    assert "fixed 6 findings in 1 file" in done.stderr
    assert run("fix", "--check", "a.py").exit_code == 0


def test_unused_suppressions_alone_are_enough_for_a_fix(folder: Path) -> None:
    (folder / "a.py").write_text(UNUSED)
    done = run("check", "--fix", "a.py")
    assert done.exit_code == 0, done.stdout
    assert (folder / "a.py").read_text() == LEFT


def test_suppressions_in_use_stay(folder: Path) -> None:
    text = BAD.replace("ctx.x = x", "ctx.x = x  # cachelint: ignore[CL101] on purpose")
    (folder / "a.py").write_text(text)
    assert run("fix", "a.py").exit_code == 0
    assert (folder / "a.py").read_text() == text
    (folder / "b.py").write_text(UNUSED)
    assert run("fix", "--ignore", "CL001", "b.py").exit_code == 0
    assert (folder / "b.py").read_text() == UNUSED


def test_a_person_may_keep_an_unused_suppression(folder: Path) -> None:
    (folder / "a.py").write_text(UNUSED)
    done = run("fix", "--interactive", "a.py", stdin="a\ns\na\na\n")
    assert done.exit_code == 1
    assert "a.py:3: CL001 left as it is\n" in done.stdout
    assert (folder / "a.py").read_text() == "a = 1  # noqa: E501\n# cachelint: ignore[CL104] an old reason\nb = 2\n"
