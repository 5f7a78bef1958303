"""Cutting a module's text into its top-level statements."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachelint.index.chunks import split

PIECES = (
    "import os\n",
    "x = 1\n",
    "\n",
    "# a comment\n",
    "def f(a,\n      b):\n    return a\n",
    "async def g():\n    pass\n",
    "class C(Base):\n    def m(self):\n        pass\n",
    "@decorated(\n    1,\n)\n@twice\ndef h():\n    pass\n",
    '"""Text\ndef not_code():\nclass Neither:\n"""\n',
    "'''one line'''\n",
    't = """\\\ndef not_code():\n"""\n',
    "if x:\n    pass\nelse:\n    pass\n",
    "try:\n    pass\nexcept E:\n    pass\nfinally:\n    pass\n",
    "y = [\n    1,\n]\n",
    "z = 1 + \\\n2\n",
)
"""What a cut may not go wrong in. Where it can't be sure (a quote in a comment behind a string), it cuts less."""


@given(st.lists(st.sampled_from(PIECES), max_size=12), st.sampled_from(("\n", "\r\n", "\r")))
def test_the_pieces_are_the_text_and_each_parses(pieces: list[str], newline: str) -> None:
    text = "".join(pieces)
    chunks = split(text.replace("\n", newline))
    head = text[: len(text) - sum(len(chunk.text) for chunk in chunks)]
    assert head + "".join(chunk.text for chunk in chunks) == text
    assert not head.strip() or head.lstrip().startswith("#")
    line = head.count("\n")
    statements = []
    for chunk in chunks:
        assert chunk.start == line
        line += chunk.text.count("\n")
        statements += ast.parse("\n" * chunk.start + chunk.text).body
    assert [ast.dump(node, include_attributes=True) for node in statements] == [
        ast.dump(node, include_attributes=True) for node in ast.parse(text).body
    ]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_definitions_have_their_kind_and_name(pieces: list[str]) -> None:
    found = [(chunk.kind, chunk.name) for chunk in split("".join(pieces)) if chunk.kind != "other"]
    kinds = {ast.FunctionDef: "def", ast.AsyncFunctionDef: "def", ast.ClassDef: "class"}
    assert found == [
        (kinds[type(node)], node.name)
        for node in ast.parse("".join(pieces)).body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('a = """\\\ntext\n"""\ndef f(): pass\n', ["", "f"]),
        ("a = '''x''' + '''\ndef no(): pass\n'''\nclass C: pass\n", ["", "C"]),
        ("def f():\n    '''\n    doc\n    '''\ndef g(): pass", ["f", "g"]),
        ('# """ in a comment\ndef f(): pass\n', ["f"]),
        ("\tindented\n", []),
        ("", []),
    ],
)
def test_quotes_and_edges(text: str, names: list[str]) -> None:
    assert [chunk.name for chunk in split(text)] == names
