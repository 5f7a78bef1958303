"""Searches through all files of a project find what a search file by file finds."""

from __future__ import annotations

import ast

from hypothesis import given
from hypothesis import strategies as st

from cachelint.index.module import ModuleInfo
from cachelint.index.project import Project
from cachelint.index.walk import children, parents, walk

FILES = st.lists(st.text("abF. (\n", max_size=12), min_size=1, max_size=5)


def project(texts: list[str]) -> Project:
    files = {f"/p/{number}.py": text for number, text in enumerate(texts)}
    return Project("/p", files, files.get, lambda path: files[path].encode())


@given(FILES, st.lists(st.text("abF", min_size=1, max_size=3), min_size=1, max_size=3))
def test_mentioning(texts: list[str], words: list[str]) -> None:
    found = project(texts).mentioning(*(word.encode() for word in words))
    assert found == [f"/p/{n}.py" for n, text in enumerate(texts) if any(word in text for word in words)]


def test_a_word_never_reaches_from_one_file_into_the_next() -> None:
    assert project(["a", "b"]).mentioning(b"ab") == []


def test_direct_calls() -> None:
    found = project(["F.forward(ctx)", "x.F . backward (ctx)\nF.apply(x)", "self.forward(x); G.forward"])
    assert found.direct_calls("F") == [("/p/0.py", 0), ("/p/1.py", 2)]
    assert found.direct_calls("self") == []
    assert found.direct_calls("G") == []


def test_a_replaced_text_is_searched_anew() -> None:
    one = project(["a", "b"])
    assert one.mentioning(b"a") == ["/p/0.py"]
    texts = {"/p/0.py": b"b"}
    one._raw = texts.get
    one.replace(ModuleInfo("/p/0.py", "b", "0"))
    assert one.mentioning(b"a") == []


def test_mentions_looks_at_the_statement_alone() -> None:
    text = "def f():\n    a\n\ndef g():\n    b\n"
    module = ModuleInfo("/p/m.py", text, "m")
    f, g = ast.parse(text).body
    assert module.mentions(f, "a")
    assert not module.mentions(f, "b")
    assert module.mentions(g, "x", "b")
    assert not module.mentions(g, "a", "def f")


def test_children_and_parents() -> None:
    tree = ast.parse("def f(a, *, b=None):\n    return {**a, 1: b} if a else [x for x in b]\n")
    above = parents(tree)
    for node in walk(tree):
        assert all(above[child] is node for child in children(node))
    assert set(above) == set(walk(tree)) - {tree}
