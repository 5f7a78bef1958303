"""Reading and writing source files: encodings, byte order marks, newlines, refusal."""

from __future__ import annotations

import ast
import os
import stat
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cachelint.source import (
    Source,
    SourceError,
    WriteRefused,
    decode,
    display_path,
    encode,
    load,
    read_bytes,
    split_lines,
    write_back,
)


def _decode(raw: bytes, name: str = "a.py") -> Source:
    return decode(raw, name, f"/{name}")


def _refused(raw: bytes) -> tuple[int, str]:
    with pytest.raises(SourceError) as caught:
        _decode(raw)
    return caught.value.error.line, caught.value.error.message


@pytest.mark.parametrize(
    ("raw", "text", "encoding", "bom"),
    [
        (b"", "", "utf-8", False),
        (b"x = 1\n", "x = 1\n", "utf-8", False),
        ("s = 'é€'\n".encode(), "s = 'é€'\n", "utf-8", False),
        (b"\xef\xbb\xbfx = 1\n", "x = 1\n", "utf-8", True),
        (b"\xef\xbb\xbf# coding: utf-8\n", "# coding: utf-8\n", "utf-8", True),
        (b"# -*- coding: latin-1 -*-\ns = '\xe9'\n", "# -*- coding: latin-1 -*-\ns = 'é'\n", "iso8859-1", False),
        (b"#!/bin/env python\n# vim: set fileencoding=cp1252 :\ns='\x80'\n", None, "cp1252", False),
        (b"# coding: utf-8-unix\n", "# coding: utf-8-unix\n", "utf-8", False),
        (b"# coding: latin-1-dos\r\n# \xe9\r\n", None, "iso8859-1", False),
        (b"\n# coding: latin-1\n# \xe9\n", None, "iso8859-1", False),
        (b"x = 1\n# coding: latin-1\n", "x = 1\n# coding: latin-1\n", "utf-8", False),
        (b"\n\n# coding: latin-1\n", "\n\n# coding: latin-1\n", "utf-8", False),
        (b"# coding: latin-1\rx = '\xe9'\r", None, "iso8859-1", False),
        (b"# coding: euc-jp\n# \xa4\xa2\n", "# coding: euc-jp\n# あ\n", "euc_jp", False),
    ],
)
def test_encodings_follow_pep_263(raw: bytes, text: str | None, encoding: str, bom: bool) -> None:
    source = _decode(raw)
    assert (source.encoding, source.bom) == (encoding, bom)
    if text is not None:
        assert source.text == text
    assert encode(source, source.text) == raw


@pytest.mark.parametrize(
    ("raw", "line", "word"),
    [
        (b"x = 1\ns = '\xe9'\n", 2, "0xe9"),
        (b"x = 1\r\rs = '\xe9'\n", 3, "latin-1"),
        (b"# coding: ascii\n\ns = '\xe9'\n", 3, "ascii"),
        (b"# coding: no-such-thing\n", 1, "no-such-thing"),
        (b"#!python\n# coding: rot13\n", 2, "not a text encoding"),
        (b"\xef\xbb\xbf# coding: latin-1\n", 1, "byte order mark"),
        (b"x = 1\ny = '\0'\n", 2, "null byte"),
        ("x = 1\n".encode("utf-16"), 1, "UTF-16"),
        (b"# coding: utf-7\n\xff", 2, "utf-7"),
    ],
)
def test_what_python_cannot_read_is_one_line(raw: bytes, line: int, word: str) -> None:
    where, message = _refused(raw)
    assert where == line
    assert word in message
    assert "\n" not in message


def test_python_agrees_on_what_can_be_read() -> None:
    """``compile`` on bytes decides for the same inputs."""
    for raw in (
        b"# coding: latin-1\ns = '\xe9'\n",
        b"s = '\xe9'\n",
        b"\xef\xbb\xbf# coding: latin-1\n",
        b"\n#coding:ascii\n",
    ):
        try:
            compile(raw, "a.py", "exec")
            fine = True
        except SyntaxError:
            fine = False
        try:
            _decode(raw)
            ours = True
        except SourceError:
            ours = False
        assert fine == ours, raw


_HEADS = st.sampled_from(
    [
        b"",
        b"\xef\xbb\xbf",
        b"# coding: latin-1\n",
        b"# coding: cp1252\r\n",
        b"# coding: utf-7\n",
        b"# coding: shift_jis\n",
        b"# coding: iso2022_jp\n",
        b"# coding: utf_16\n",
        b"# coding: unicode_escape\n",
        b"\n# coding: gbk\n",
    ]
)
_PIECES = st.one_of(st.binary(max_size=12), st.sampled_from([b"\r\n", b"\r", b"\n", b"\f", b"x = 1", "é".encode()]))


@given(_HEADS, st.lists(_PIECES, max_size=8))
@example(b"# coding: utf-7\n", [b"+AGE-"])
@example(b"# coding: iso2022_jp\n", [b"\x1b(B\x1b(B"])
def test_any_bytes_are_refused_or_come_back_byte_for_byte(head: bytes, pieces: list[bytes]) -> None:
    raw = head + b"".join(pieces)
    try:
        source = _decode(raw)
    except SourceError as caught:
        problem = caught.error
        assert problem.line >= 1
        assert "\n" not in problem.message
        return
    assert "\0" not in source.text
    if source.exact:
        assert encode(source, source.text) == raw
    else:  # a codec with several spellings of one text: such a file is never written
        with pytest.raises(WriteRefused):
            write_back(source, source.text + "#")


@given(st.text(alphabet=" \t\r\n\f", max_size=30))
def test_lines_are_counted_as_python_does(blank: str) -> None:
    (statement,) = ast.parse(f"{blank}\nx").body
    assert statement.lineno == len(split_lines(f"{blank}\nx"))


def test_only_newlines_end_lines() -> None:
    assert split_lines("a\x0cb\x1cc\u2028d\re\r\nf\n") == ("a\x0cb\x1cc\u2028d", "e", "f", "")


def test_paths_are_shown_relative_with_forward_slashes() -> None:
    assert display_path("/a/b/c.py", "/a") == "b/c.py"
    assert display_path("/a/c.py", "/a/b") == "../c.py"
    assert display_path("/c.py", "/") == "c.py"
    assert display_path("/ab/c.py", "/a") == "../ab/c.py"
    for path in ("/", "/a", "/a/b", "/a/bc", "/a/b/c", "/a/b/c/d.py", "/x/y.py"):
        for cwd in ("/", "/a", "/a/b", "/a/b/c"):
            assert display_path(path, cwd) == os.path.relpath(path, cwd), (path, cwd)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "p.py"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        read_bytes(str(pipe))
    with pytest.raises(IsADirectoryError):
        read_bytes(str(tmp_path))
    with pytest.raises(SourceError) as caught:
        load(str(tmp_path / "none.py"), "none.py")
    assert caught.value.error.message == "no such file"


def _loaded(path: Path, raw: bytes) -> Source:
    path.write_bytes(raw)
    return load(str(path), path.name)


def test_writing_keeps_mode_encoding_mark_and_newlines(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    source = _loaded(path, b"\xef\xbb\xbfx = 'a'\r\ny = '\xc3\xa9'\r\n")
    path.chmod(0o751)
    assert write_back(source, source.text.replace("'a'", "'€'"))
    assert path.read_bytes() == "\ufeffx = '€'\r\ny = 'é'\r\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.py"]


def test_nothing_is_written_for_the_same_text(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    source = _loaded(path, b"x = 1\n")
    before = path.stat().st_mtime_ns
    assert not write_back(source, source.text)
    assert path.stat().st_mtime_ns == before


def test_a_changed_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    source = _loaded(path, b"x = 1\n")
    path.write_bytes(b"x = 2\n")
    with pytest.raises(WriteRefused, match="changed since"):
        write_back(source, "x = 3\n")
    assert path.read_bytes() == b"x = 2\n"
    path.unlink()
    with pytest.raises(WriteRefused, match="cannot be written"):
        write_back(source, "x = 3\n")


def test_text_that_the_encoding_lacks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    source = _loaded(path, b"# coding: latin-1\nx = 1\n")
    with pytest.raises(WriteRefused, match="iso8859-1"):
        write_back(source, source.text + "s = '€'\n")
    assert path.read_bytes() == source.raw


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    real, link = tmp_path / "real.py", tmp_path / "link.py"
    real.write_bytes(b"x = 1\n")
    link.symlink_to("real.py")
    assert write_back(load(str(link), "link.py"), "x = 2\n")
    assert link.is_symlink()
    assert real.read_bytes() == b"x = 2\n"
