"""Comments and logical lines without a parse, against the standard library's tokenizer."""

from __future__ import annotations

import io
import sysconfig
import tokenize
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cachelint.scan import Statement, scan


def _tokenized(text: str) -> tuple[list[tuple[int, str]], list[tuple[int, int]]]:
    """Comments (line, text) and logical lines (first, last) by :mod:`tokenize`."""
    comments, lines = [], []
    first = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.append((token.start[0], token.string))
        elif token.type == tokenize.NEWLINE:
            if first:  # a lone backslash makes a logical line of nothing
                lines.append((first, token.start[0]))
            first = 0
        elif token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER) and not first:
            first = token.start[0]
    return comments, lines


def _ours(text: str) -> tuple[list[tuple[int, str]], list[tuple[int, int]]]:
    found = scan(text)
    return [(c.line, c.text) for c in found.comments], [(s.first, s.last) for s in found.statements]


def _library() -> list[Path]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    return sorted(folder.glob("*.py"))[::6] + sorted((folder / "asyncio").glob("*.py"))


@pytest.mark.parametrize("path", _library(), ids=lambda path: path.name)
def test_agrees_with_tokenize_on_the_standard_library(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert _ours(text) == _tokenized(text)


_BITS = st.sampled_from(
    [
        "x",
        " = ",
        "1",
        "\n",
        "\n",
        "# c",
        "'",
        '"',
        "'''",
        '"""',
        "\\\n",
        "\\",
        "(",
        ")",
        "[",
        "]",
        "r'",
        'f"',
        "  ",
        ";",
        "{",
        "}",
    ]
)


@example("\\\nx\n")
@given(st.lists(_BITS, max_size=14).map(lambda bits: "".join(bits) + "\n"))
def test_agrees_with_tokenize_where_that_is_sure(text: str) -> None:
    try:
        expected = _tokenized(text)
    except (tokenize.TokenError, IndentationError):
        scan(text)  # no failure, whatever the text
        return
    try:
        compile(text, "a.py", "exec")
    except SyntaxError:
        scan(text)
        return
    assert _ours(text) == expected


def test_newer_strings() -> None:
    text = 'a = f"{d["k"]} #1"  # one\nb = t"{x}"  # two\nc = f"""{\n  # inner\n  y}"""  # three\n'
    assert [c.text for c in scan(text).comments] == ["# one", "# two", "# three"]


def test_where_statements_end() -> None:
    text = "x = (1,\n     2)  # c\n# own\ny = '''\n#no\n'''\r\nz = 1"
    found = scan(text)
    assert found.statements == (
        Statement(1, 2, text.index(")") + 1),
        Statement(4, 6, text.index("\r")),
        Statement(7, 7, len(text)),
    )
    assert [(c.line, c.own_line) for c in found.comments] == [(2, False), (3, True)]
    assert found.statement_at(5) == found.statements[1]
    assert found.statement_at(3) is None
    assert found.statement_after(3) == found.statements[1]
    assert found.statement_after(7) is None
