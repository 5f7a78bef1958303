"""Patterns in gitignore's syntax, with git itself as the reference."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachelint.patterns import compile_patterns, parse

PATHS = [
    "a.py",
    "b/a.py",
    "b/c/a.py",
    "b/c/d.py",
    "build/x.py",
    "src/build/x.py",
    "[x].py",
    "a b.py",
    "foo.pyc/x.py",
    "#a.py",
    "!a.py",
]


def _ours(text: str, path: str) -> bool:
    """As the walk does it: each folder from the top, then the file."""
    return parse(text).covers(path)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for path in PATHS:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    return folder


def _gits(repository: Path, text: str) -> set[str]:
    (repository / ".gitignore").write_bytes(text.encode())
    done = subprocess.run(
        ["git", "-C", str(repository), "-c", "core.excludesFile=/dev/null", "check-ignore", "-z", "--stdin"],
        input="\0".join(PATHS).encode(),
        capture_output=True,
        check=False,
    )
    return set(filter(None, done.stdout.decode().split("\0")))


@pytest.mark.parametrize(
    "text",
    [
        "build/", "/build/", "build", "*.py", "!a.py\n*.py", "*.py\n!a.py", "b/\n!b/c/a.py", "b/*\n!b/c", "b/**/a.py",
        "**/c", "**/c/**", "b/**", "/**", "**", "*", "*/", "[!a].py", "[a-c].py", "?.py", "\\#a.py", "#a.py", "\\!a.py",
        "a\\ b.py", "a b.py   ", "a b.py\\ ", "[", "[[]x].py", "[[:alpha:]].py", "[]x].py", "b/c/", "c/a.py",
        "/b/c/a.py", "*.py[cod]", "**foo.pyc", "b**a.py", "b/*/a.py", "*/a.py", "a.p?",
        "\ufeffa.py", "a.py\r\nb\r\n", "!", "/", "//a.py", "b//", "foo.py\\c", "[x\\].py", "[\\x]*", "***",
        "b/***/a.py", "[a-]*", "[^a]*", "[!/]*", "b[/]c", " a.py", "*.PY",
    ],
)  # fmt: skip
def test_git_agrees(repository: Path, text: str) -> None:
    assert {path for path in PATHS if _ours(text, path)} == _gits(repository, text)


_PART = st.sampled_from(["a", "b", "c", "*", "**", "?", "/", "/", ".py", "[a-c]", "[!a]", "build", "\\", "!", "#", " "])


@settings(deadline=None, max_examples=60)
@given(lines=st.lists(st.lists(_PART, max_size=5).map("".join), max_size=3))
def test_git_agrees_on_any_patterns(repository: Path, lines: list[str]) -> None:
    text = "\n".join(lines)
    assert {path for path in PATHS if _ours(text, path)} == _gits(repository, text)


def test_the_last_match_decides_and_silence_is_none() -> None:
    found = compile_patterns(["*.py", "!keep.py", "x/"])
    assert found.match("a.py", False) is True
    assert found.match("b/keep.py", False) is False
    assert found.match("a.txt", False) is None
    assert found.match("x", False) is None
    assert found.match("x", True) is True
