"""The rewriter changes what the edits name and nothing else."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachelint.fix.edits import After, Before, Edit, Extend, Replace, Rewrite, Text
from cachelint.fix.rewrite import CannotRewrite, rewrite

SAMPLE = '''\
# -*- above -*-
import torch


class A:
    """Doc."""

    # before
    def f(self, x):  # the head
        y = (x +
             1)  # spread
        é = "ü"; z = y  # two on a line

        # before the if
        if y: z = 2
        elif z:
            del y
        return (y, z)  # out


@decorated
def g(
    a,
    b=1,
):
    call(a, b)
    (one,) = a
    return a
'''


def span_of(text: str, code: str) -> tuple[Text, ast.AST]:
    """The first statement or expression whose source is ``code``."""
    lines = Text(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.stmt, ast.expr)) and lines.source(node) == code:
            return lines, node
    raise AssertionError(code)


def at(code: str, text: str = SAMPLE):  # type: ignore[no-untyped-def]
    lines, node = span_of(text, code)
    return lines.span(node)


def test_nothing_changes_without_edits() -> None:
    assert rewrite(SAMPLE, []) == SAMPLE


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        (Replace(at('"ü"'), "None"), 'é = "ü"', "é = None"),
        (Replace(at("(y, z)"), "(z, y)"), "return (y, z)  # out", "return (z, y)  # out"),
        (Rewrite(at("z = y")), 'é = "ü"; z = y  # two', 'é = "ü"  # two'),
        (Rewrite(at("z = 2")), "if y: z = 2", "if y: pass"),
        (Rewrite(at("del y")), "del y", "pass"),
        (
            Before(at("z = 2"), ("w = 1",)),
            "if y: z = 2\n        elif",
            "if y:\n            w = 1\n            z = 2\n        elif",
        ),
        (After(at("z = y"), ("w = 1",)), "z = y  # two on a line\n", "z = y  # two on a line\n        w = 1\n"),
        (
            Before(at("return (y, z)"), ("w = 1",)),
            "        return (y, z)  # out",
            "        w = 1\n        return (y, z)  # out",
        ),
        (Extend(at("call(a, b)"), ("c", "*d")), "call(a, b)", "call(a, b, c, *d)"),
        (Extend(at("call(a, b)"), ("c",), front=True), "call(a, b)", "call(c, a, b)"),
        (Extend(at("(one,)"), ("two",)), "(one,) = a", "one, two = a"),
        (Extend(at("(one,)"), ("two",), front=True), "(one,) = a", "two, one = a"),
    ],
)
def test_one_edit(edit: Edit, old: str, new: str) -> None:
    assert SAMPLE.count(old) == 1
    assert rewrite(SAMPLE, [edit]) == SAMPLE.replace(old, new)


def test_a_parameter_joins_the_others() -> None:
    lines = Text(SAMPLE)
    function = next(n for n in ast.walk(ast.parse(SAMPLE)) if isinstance(n, ast.FunctionDef) and n.name == "g")
    assert rewrite(SAMPLE, [Extend(lines.span(function), ("c=None",))]) == SAMPLE.replace(
        "    b=1,\n", "    b=1,\n    c=None,\n"
    )


def test_comments_above_a_statement_that_goes_stay() -> None:
    text = "def f():\n    # why\n    a = 1  # how\n\n    # next\n    b = 2\n"
    assert rewrite(text, [Rewrite(at("a = 1", text))]) == "def f():\n    # why\n    # how\n\n    # next\n    b = 2\n"


def test_a_pragma_goes_with_its_statement() -> None:
    text = "def f():\n    a = 1  # noqa: CL101\n    b = 2\n"
    assert rewrite(text, [Rewrite(at("a = 1", text))]) == "def f():\n    b = 2\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("indent", ["    ", "\t", "  "])
def test_newlines_and_indentation_are_the_files_own(newline: str, indent: str) -> None:
    text = f"class A:{newline}{indent}def f(self):{newline}{indent * 2}a = 1{newline}{indent * 2}return a{newline}"
    expected = text.replace(f"a = 1{newline}", f"a = 1{newline}{indent * 2}b = 2{newline}")
    assert rewrite(text, [After(at("a = 1", text), ("b = 2",))]) == expected


def test_a_place_that_is_not_there_is_an_error() -> None:
    lines, node = span_of(SAMPLE, "z = y")
    wrong = lines.span(node)
    with pytest.raises(CannotRewrite, match="not found"):
        rewrite(SAMPLE.replace("; z = y", "   "), [Rewrite(wrong)])


def test_code_that_is_not_python_is_an_error() -> None:
    with pytest.raises(CannotRewrite, match="not Python"):
        rewrite(SAMPLE, [Replace(at('"ü"'), "1 +")])


STATEMENTS = st.sampled_from(
    ["a = 1", "b = f(a, c)", "pass", "x.y = z", "if a:\n    b = 2  # c", "for i in a: b = i", "c = 1; d = 2"]
)


@st.composite
def blocks(draw: st.DrawFn) -> str:
    """A function of statements, comments and blank lines."""
    lines = ["def f(x):"]
    for statement in draw(st.lists(STATEMENTS, min_size=1, max_size=6)):
        lines += draw(st.sampled_from([[], [""], ["    # note"], ["", "    # two", "    # lines"]]))
        lines += [f"    {line}" for line in statement.split("\n")]
    return "\n".join(lines) + draw(st.sampled_from(["\n", "", "\n\n# end\n"]))


@settings(max_examples=150, deadline=None)
@given(blocks(), st.data())
def test_removing_statements_leaves_the_rest_as_it_was(text: str, data: st.DataObject) -> None:
    tree = ast.parse(text)
    simple = [
        n for n in ast.walk(tree) if isinstance(n, ast.stmt) and not isinstance(n, (ast.If, ast.For, ast.FunctionDef))
    ]
    gone = data.draw(st.lists(st.sampled_from(simple), unique=True, max_size=3))
    lines = Text(text)
    after = rewrite(text, [Rewrite(lines.span(node)) for node in gone])
    touched = {node.lineno for node in gone}
    kept = [line for number, line in enumerate(text.split("\n"), start=1) if number not in touched]
    remaining = after.split("\n")
    for line in kept:  # every other line is there, in order
        assert line in remaining
        remaining = remaining[remaining.index(line) + 1 :]
    ast.parse(after)
    statements = [ast.dump(n) for n in ast.walk(ast.parse(after)) if isinstance(n, ast.stmt)]
    expected = [ast.dump(n) for n in simple if n not in gone]
    assert [s for s in statements if s in expected] or not expected


@settings(max_examples=100, deadline=None)
@given(blocks(), st.data())
def test_inserted_statements_stand_where_they_should(text: str, data: st.DataObject) -> None:
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    index = data.draw(st.integers(0, len(function.body) - 1))
    behind = data.draw(st.booleans())
    span = Text(text).span(function.body[index])
    edit = After(span, ("new = 0",)) if behind else Before(span, ("new = 0",))
    after = ast.parse(rewrite(text, [edit])).body[0]
    assert isinstance(after, ast.FunctionDef)
    dumped = [ast.dump(n) for n in after.body]
    before = [ast.dump(n) for n in function.body]
    place = index + 1 if behind else index
    assert dumped == [*before[:place], ast.dump(ast.parse("new = 0").body[0]), *before[place:]]
