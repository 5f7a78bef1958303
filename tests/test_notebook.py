"""Notebooks: cells as one text, magics out of the way, and back into the same JSON."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachelint.notebook import NotebookError, parse
from cachelint.source import SourceError, WriteRefused, decode, encode


def _cell(source: Any, kind: str = "code") -> dict[str, Any]:
    return {"cell_type": kind, "id": "a1", "metadata": {}, "outputs": [], "source": source}


def _raw(*cells: dict[str, Any], indent: int | None = 1, **metadata: Any) -> bytes:
    data = {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return (json.dumps(data, indent=indent, ensure_ascii=False) + "\n").encode()


def test_cells_become_one_text_with_their_lines() -> None:
    notebook = parse(_raw(_cell(["x = 1\n", "y = 2"]), _cell("# T", "markdown"), _cell("z = 3\n"), _cell([])))
    ast.parse(notebook.text)
    lines = notebook.text.split("\n")
    for wanted, place in (("x = 1", (1, 1)), ("y = 2", (1, 2)), ("z = 3", (3, 1))):
        assert notebook.place(lines.index(wanted) + 1) == place
    assert notebook.problems == ()


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ("%matplotlib inline\nx = 1", ["x = 1"]),
        ("!pip install 'x\nx = 1", ["x = 1"]),
        ("files = !ls -l\nx = 1", ["x = 1"]),
        ("t = %timeit -o f()\nx = 1", ["x = 1"]),
        ("x?\nlen??\n?x\nx = 1", ["x = 1"]),
        ("if a:\n    %time f(\n    !echo (\nx = 1", ["if a:", "x = 1"]),
        ("!cat \\\n  'unbalanced \\\n  (\nx = 1", ["x = 1"]),
        ("%%time\nx = 1", ["x = 1"]),
        ("%%capture out\nx = 1", ["x = 1"]),
        ("%%bash\necho 'x = (", []),
        ("%%writefile a.py\nx = 1", []),
        ("a = (b\n% c)\nx = 1", ["a = (b", "% c)", "x = 1"]),
        ("s = '''\n%no\n!no\n'''\nx = 1", ["s = '''", "%no", "!no", "'''", "x = 1"]),
        ("a %= 2\nb = c != d\nx = 1", ["a %= 2", "b = c != d", "x = 1"]),
        ("await f()\nasync with g() as h:\n    x = 1", ["await f()", "async with g() as h:", "    x = 1"]),
    ],
)
def test_magics_are_neutralised_line_for_line(source: str, kept: list[str]) -> None:
    raw = _raw(_cell(source))
    notebook = parse(raw)
    ast.parse(notebook.text)
    virtual = notebook.text.split("\n")
    original = source.split("\n")
    assert len(virtual) == len(original) + 2
    assert [line for line in virtual if line in original] == kept
    for line in kept:
        assert notebook.place(virtual.index(line) + 1) == (1, original.index(line) + 1)
    assert notebook.render(raw, notebook.text) == raw


def test_a_broken_cell_does_not_hide_the_others() -> None:
    raw = _raw(_cell("x = 1"), _cell("%time\ndef f(:\n"), _cell("y = 2"))
    source = decode(raw, "n.ipynb", "/n.ipynb")
    assert [name.id for name in ast.walk(ast.parse(source.text)) if isinstance(name, ast.Name)] == ["x", "y"]
    (problem,) = source.problems
    assert "cell 2, line 2" in problem.message
    assert source.notebook is not None
    assert source.notebook.place(problem.line) == (2, 2)
    assert source.notebook.render(raw, source.text.replace("y = 2", "y = 3")) == raw.replace(b"y = 2", b"y = 3")


def test_newer_syntax_is_no_broken_cell() -> None:
    assert parse(_raw(_cell("type X = int"), _cell("x = 1"))).problems == ()


def test_an_edit_changes_only_its_cell() -> None:
    raw = _raw(_cell(["!ls\n", "é = 1\n", "x = 2"]), _cell("y = 'ü'\n"), kernelspec={"language": "python", "n": 1.50})
    raw = raw.replace(b'"metadata": {}', b'"metadata":   {"keep" : [1,2]}')
    source = decode(raw, "n.ipynb", "/n.ipynb")
    text = source.text.replace("x = 2", "x = 3\nw = 4").replace("y = 'ü'", "y = '€'")
    new = encode(source, text)
    assert new == raw.replace(b'"x = 2"', b'"x = 3\\n",\n    "w = 4"').replace("'ü'".encode(), "'€'".encode())
    assert json.loads(new)["cells"][0]["source"] == ["!ls\n", "é = 1\n", "x = 3\n", "w = 4"]


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("source", [["x = 1\n", "y = 2"], "x = 1\ny = 2", ["x = 1\ny = 2"]])
def test_any_layout_of_the_json(indent: int | None, source: Any) -> None:
    raw = _raw(_cell(source), indent=indent)
    found = decode(raw, "n.ipynb", "/n.ipynb")
    new = encode(found, found.text.replace("y = 2", "y = 3"))
    assert "".join(json.loads(new)["cells"][0]["source"]) == "x = 1\ny = 3"
    assert new.count(b"\n") == raw.count(b"\n") + (source == ["x = 1\ny = 2"] and indent is not None)


def test_code_before_the_first_marker_goes_into_the_first_cell() -> None:
    source = decode(_raw(_cell("# T", "markdown"), _cell(["x = 1"])), "n.ipynb", "/n.ipynb")
    new = json.loads(encode(source, "import os\n" + source.text))
    assert new["cells"][1]["source"] == ["import os\n", "x = 1"]


@pytest.mark.parametrize("damage", [("# %% [cachelint cell 1]\n", ""), ("pass  # [cachelint magic 0]", "pass")])
def test_edits_that_do_not_map_back_are_refused(damage: tuple[str, str]) -> None:
    source = decode(_raw(_cell(["%time\n", "x = 1"])), "n.ipynb", "/n.ipynb")
    with pytest.raises(WriteRefused):
        encode(source, source.text.replace(*damage))


def test_a_cell_that_looks_like_our_markers_is_linted_and_not_written() -> None:
    source = decode(_raw(_cell("# %% [cachelint cell 7]\nx = 1")), "n.ipynb", "/n.ipynb")
    assert "x = 1" in source.text
    with pytest.raises(WriteRefused):
        encode(source, source.text.replace("x = 1", "x = 2"))


@pytest.mark.parametrize(
    ("raw", "line", "word"),
    [
        (b"", 1, "not a notebook"),
        (b'{"cells": [\n', 2, "not a notebook"),
        (b"[]", 1, "format 4"),
        (b'{"worksheets": []}', 1, "format 4"),
        (b'{"cells": [{"cell_type": "code", "source": 3}]}', 1, "cell 1"),
        (b'\n"\xff"', 2, "UTF-8"),
        (b"[" * 100_000, 1, "nested"),
    ],
)
def test_what_is_no_notebook_is_one_line(raw: bytes, line: int, word: str) -> None:
    with pytest.raises(SourceError) as caught:
        decode(raw, "n.ipynb", "/n.ipynb")
    assert caught.value.error.line == line
    assert word in caught.value.error.message


def test_other_languages_yield_nothing() -> None:
    assert parse(_raw(_cell("x <- 1"), language_info={"name": "R"})).text == ""
    assert parse(_raw(_cell("x = 1"), language_info={"name": "python"})).cells == (1,)


_LINES = st.sampled_from(
    ["x = 1", "%time f(", "!ls \\", "  y?", "'''", "a = !b", "", "(", ")", "if x:", "    %t", "%%bash", "é"]
)


@given(st.lists(st.lists(_LINES, max_size=6).map("\n".join), max_size=4), st.sampled_from([None, 1, 2]))
def test_any_notebook_comes_back_byte_for_byte(sources: list[str], indent: int | None) -> None:
    raw = _raw(*(_cell(source.splitlines(keepends=True)) for source in sources), indent=indent)
    try:
        notebook = parse(raw)
    except NotebookError:
        pytest.fail("a valid notebook was refused")
    assert notebook.render(raw, notebook.text) == raw
    added = notebook.render(raw, notebook.text + "z = 1\n" if notebook.cells else notebook.text)
    cells = ["".join(cell["source"]) for cell in json.loads(added)["cells"]]
    if sources:
        assert cells[:-1] == sources[:-1]
        assert cells[-1] == sources[-1] + "\nz = 1"
    starts = [notebook.text.count("\n", 0, at.start()) + 1 for at in _markers(notebook.text)]
    assert tuple(starts) == notebook.starts


def _markers(text: str) -> Any:
    import re

    return re.finditer(r"^# %% \[cachelint cell", text, re.MULTILINE)
