"""Syntax newer than the running Python keeps its lines and its names when it is lowered."""

from __future__ import annotations

import ast
import sys

import pytest

from cachelint.index.downgrade import downgrade
from cachelint.index.lower import check, parse

NEWER = {
    "template string": 'x = t"a{ctx.b}"\ny = 1\n',
    "same quotes inside": 'x = f"{d["k"]} {f"{ctx.b!r:>{w}}"}"\ny = 1\n',
    "lines inside": 'x = f"""\n{\n    ctx.b\n}\n"""\ny = 1\n',
    "concatenated": 'x = ("a" f"{ctx.b}" \'c\')\ny = 1\n',
    "except without parentheses": "try:\n    pass\nexcept A, B:\n    pass\ny = 1\n",
    "except star without parentheses": "try:\n    pass\nexcept* A, B:\n    pass\ny = 1\n",
    "type statement": "type X[T = int] = list[T]\ny = 1\n",
    "type parameters": "class A[T: int]:\n    def f[*Ts, **P](self, x: T) -> T: ...\ny = 1\n",
    "walrus and tuple in braces": 'x = f"{(a := ctx.b)} {1, 2}"\ny = 1\n',
}


@pytest.mark.parametrize("text", NEWER.values(), ids=NEWER.keys())
def test_newer_syntax_parses_with_lines_and_reads_kept(text: str) -> None:
    tree = parse(text, "x.py")
    last = next(node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "y")
    assert last.lineno == text[: text.index("y = 1")].count("\n") + 1
    reads = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert ("b" in reads) is ("ctx.b" in text)


@pytest.mark.parametrize("text", NEWER.values(), ids=NEWER.keys())
def test_lowered_text_needs_nothing_newer_than_3_11(text: str) -> None:
    ast.parse(downgrade(text), feature_version=(3, 11))


@pytest.mark.parametrize("text", ["def f(:\n", 'print "x"\n', "x = (1,\n", "exec 'a'\n", "0777\n", "a = `b`\n"])
def test_what_no_grammar_accepts_is_a_syntax_error_with_a_line(text: str) -> None:
    for run in (parse, check):
        with pytest.raises(SyntaxError) as caught:
            run(text, "x.py")
        assert caught.value.lineno == 1


def test_deep_nesting_is_a_syntax_error_not_a_crash() -> None:
    with pytest.raises(SyntaxError):
        parse("(" * 5000 + ")" * 5000, "x.py")


def test_null_bytes_are_a_syntax_error() -> None:
    with pytest.raises(SyntaxError):
        parse("x = 1\0\n", "x.py")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python reads nested quotes itself")
def test_the_standard_parser_alone_would_refuse() -> None:
    with pytest.raises(SyntaxError):
        ast.parse(NEWER["same quotes inside"])
