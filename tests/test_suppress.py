"""Suppression comments: which finding each silences, which do nothing, and how they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachelint.model import Finding
from cachelint.source import Source, decode
from cachelint.suppress import add_noqa, apply, directives, drop_unused, mentions

NAMES = {"CL101": "cached-live-input", "CL102": "recomputable", "CL103": "unregistered-save"}


def _source(text: str) -> Source:
    return decode(text.encode(), "a.py", "/a.py")


def _finding(line: int, code: str = "CL103", end_line: int | None = None) -> Finding:
    return Finding(code, NAMES[code], "a.py", line, 1, end_line or line, 5, "m")


def _left(text: str, *findings: Finding) -> list[tuple[str, int]]:
    return [(one.code, one.line) for one in apply(findings, _source(text)).kept]


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "#noqa",
        "# NOQA",
        "# NoQA: CL103",
        "# noqa:CL103",
        "# noqa : CL103",
        "# noqa: E501,CL103",
        "# noqa: E501 CL103",
        "# noqa: CL103 because",
        "# noqa: CL1",
        "# type: ignore # noqa: CL103",
        "# cachelint: ignore",
        "# cachelint:ignore[CL103]",
        "# cachelint: ignore[CL101, CL103] both",
        "# cachelint: ignore[unregistered-save]",
        "# cachelint: ignore[CL]",
        "# cachelint: ignore[ALL]",
        "# Cachelint: Ignore[cl103]",
        "# noqa: E501 # cachelint: ignore[CL103]",
    ],
)
def test_these_silence_the_finding(comment: str) -> None:
    outcome = apply([_finding(1), _finding(1, "CL101")], _source(f"x = 1  {comment}\n"))
    assert ("CL103", 1) in [(one.code, one.line) for one in outcome.suppressed]


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa: E501",
        "# noqa: CL101",
        "# noqa:",
        "# noqa: because",
        "# noqax",
        "# no qa",
        "# flake8: noqa",
        "# cachelint: ignore[CL101]",
        "# cachelint: ignore[]",
        "# cachelint: ignored",
        "# cachelint: disable",
        "; s = '# noqa'",
        "# ruff: noqa",
    ],
)
def test_these_do_not(comment: str) -> None:
    assert ("CL103", 1) in _left(f"x = 1  {comment}\n", _finding(1))


CALL = "x = f(  {0}\n    1,  {1}\n    2,  {2}\n)  {3}\n"


@pytest.mark.parametrize(("place", "silent"), [(0, True), (1, False), (2, False), (3, True)])
def test_first_and_last_line_of_a_statement_count(place: int, silent: bool) -> None:
    text = CALL.format(*("# noqa: CL103" if at == place else "#" for at in range(4)))
    codes = [code for code, _ in _left(text, _finding(1, end_line=4))]
    assert ("CL103" not in codes) is silent
    assert ("CL001" in codes) is not silent


def test_the_line_of_the_finding_itself_counts() -> None:
    text = CALL.format("#", "# noqa: CL103", "# noqa: CL101", "#")
    assert _left(text, _finding(2), _finding(2, "CL101", end_line=3)) == []
    assert _left(text, _finding(3)) == [("CL001", 2), ("CL103", 3), ("CL001", 3)]


def test_a_comment_stays_with_its_statement() -> None:
    text = "class A:  # noqa: CL103\n    x = 1\n    y = 2  # noqa: CL103\n"
    assert _left(text, _finding(1, end_line=3)) == [("CL001", 3)]
    assert _left(text, _finding(2)) == [("CL001", 1), ("CL103", 2), ("CL001", 3)]


def test_a_comment_alone_on_its_line_is_for_the_statement_below() -> None:
    text = "# cachelint: ignore[CL103] reason\n# more\nx = f(\n  1)\ny = 1\n"
    assert _left(text, _finding(3), _finding(4)) == []
    assert _left(text, _finding(5)) == [("CL001", 1), ("CL103", 5)]
    assert _left("# noqa: CL103\nx = 1\n", _finding(2)) == [("CL001", 1), ("CL103", 2)]


def test_whole_files() -> None:
    text = "x = 1\n# cachelint: file-ignore[CL103, CL101] generated\n"
    assert _left(text, _finding(1), _finding(1, "CL101"), _finding(1, "CL102")) == [("CL102", 1)]
    assert _left(text, _finding(1)) == [("CL001", 2)]
    assert _left("# cachelint: file-ignore\nx = 1\n", _finding(2), _finding(2, "CL102")) == []


@pytest.mark.parametrize(
    ("comment", "reported"),
    [
        ("# noqa", False),
        ("# noqa: E501", False),
        ("# noqa: CL103", True),
        ("# noqa: E501, CL103", True),
        ("# cachelint: ignore", True),
        ("# cachelint: ignore[CL1]", True),
        ("# cachelint: ignore[nonsense]", True),
        ("# cachelint: file-ignore", True),
        ("# noqa: CL103, CL001", False),
        ("s = '# noqa: CL103'", False),
        ('"""\n# cachelint: ignore\n"""', False),
    ],
)
def test_what_is_reported_as_unused(comment: str, reported: bool) -> None:
    text = comment if comment.startswith(("s", '"')) else f"x = 1  {comment}\n"
    kept = apply([], _source(text)).kept
    assert [one.code for one in kept] == ["CL001"] * reported
    if reported:
        assert mentions(text.encode())
        assert kept[0].fix is not None
        assert text.split("\n")[0][kept[0].column - 1 : kept[0].end_column - 1].startswith("#")


def test_only_the_idle_codes_are_named() -> None:
    (one,) = apply([_finding(1)], _source("x = 1  # noqa: E501, CL103, CL101\n")).kept
    assert one.names == ("CL101",)
    assert "`CL101`" in one.message
    assert "CL103" not in one.message


def test_removing_what_is_unused() -> None:
    text = (
        "x = 1  # noqa: E501, CL101, CL103\n# cachelint: ignore[CL101] old\ny = 1  # cachelint: ignore[CL103] why\n"
        "z = 1  # noqa: CL102 # keep\n"
    )
    source = _source(text)
    reports = apply([_finding(1)], source).kept
    new = drop_unused(source, reports)
    assert new == "x = 1  # noqa: E501, CL103\ny = 1\nz = 1  # keep\n"
    assert apply([_finding(1)], _source(new)).kept == ()


def test_writing_noqa() -> None:
    text = (
        'x = f(\n  1,\n)\ny = """\n"""\nz = 1  # c\nw = 1 # noqa: E501\nv = 1  # noqa\n'
        "u = 1  # cachelint: ignore[CL101]\nt = 1"
    )
    lines = (1, 4, 6, 7, 9, 10)
    findings = [_finding(line) for line in lines] + [_finding(2, "CL101")]
    new = add_noqa(_source(text), findings)
    assert new.split("\n") == [
        "x = f(",
        "  1,",
        ")  # noqa: CL103, CL101",
        'y = """',
        '"""  # noqa: CL103',
        "z = 1  # c  # noqa: CL103",
        "w = 1 # noqa: E501, CL103",
        "v = 1  # noqa",
        "u = 1  # cachelint: ignore[CL101]  # noqa: CL103",
        "t = 1  # noqa: CL103",
    ]
    assert not [one for one in apply(findings, _source(new)).kept if one.code != "CL001"]
    assert add_noqa(_source(new), findings) == new


_STATEMENTS = st.sampled_from(
    [
        "x = 1",
        "x = f(\n  1,\n  2)",
        "s = '''\n# noqa\n'''",
        "y = 1  # noqa",
        "if x:\n    pass  # c",
        "z = \\\n  1",
        "w = 1  # noqa: E501",
        "def f():\r\n    return 1",
        "@d\nclass A: x = '#'",
        "# noqa: CL101",
        "v = 2  # cachelint: ignore[CL102]",
    ]
)


@given(st.lists(_STATEMENTS, max_size=6).map("\n".join), st.data())
def test_written_noqa_silences_everything_and_nothing_else_changes(text: str, data: st.DataObject) -> None:
    source = _source(text)
    statements = [line for line in range(1, len(source.lines) + 1) if _starts(source, line)]
    if not statements:
        return
    findings = [
        _finding(line, code)
        for line in data.draw(st.lists(st.sampled_from(statements), unique=True))
        for code in data.draw(st.lists(st.sampled_from(sorted(NAMES)), min_size=1, unique=True))
    ]
    new = _source(add_noqa(source, findings))
    assert [one for one in apply(findings, new).kept if one.code != "CL001"] == []
    assert _without_comments(new) == _without_comments(source)


def _starts(source: Source, line: int) -> bool:
    from cachelint.scan import scan

    return scan(source.text).statement_at(line) is not None


def _without_comments(source: Source) -> str:
    from cachelint.scan import scan

    text = source.text
    for comment in reversed(scan(text).comments):
        text = text[: comment.offset].rstrip(" ") + text[comment.offset + len(comment.text) :]
    return text


def test_directives_know_where_they_stand() -> None:
    (one,) = directives("a = 1\r\nx = 1  # noqa: CL103\r\n")
    assert (one.line, one.column, one.codes) == (2, 8, ("CL103",))
