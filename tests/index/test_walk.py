"""The fast walk gives what the standard library's gives, in the same order."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cachelint.index.walk import walk

SOURCES = sorted(Path(__file__).parents[2].joinpath("cachelint", "infer").glob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_same_nodes_in_the_same_order(path: Path) -> None:
    tree = ast.parse(path.read_text())
    standard = [node for node in ast.walk(tree) if not isinstance(node, ast.expr_context)]
    assert list(walk(tree)) == standard
