"""The fast walk gives what the standard library's gives, in the same order."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from cachelint.index.walk import walk

SOURCES = sorted(Path(__file__).parents[2].joinpath("cachelint", "infer").glob("*.py"))
LEFT_OUT = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)

RARE = """
import a.b as c, d
from .e import f as g, h
async def i(j: int, /, k=1, *l: m, n, o=2, **p) -> q:
    async with r as s, t:
        async for u in v:
            await w
        else:
            yield
    global x
    del y[z:1:2], a.b
    return {**c, d: e}, {f, *g}, [h async for i in j if k if l], {m: n for o, in p}, (q for q in q)
class R(s, *t, metaclass=u, **v):
    w: x = y
    z: a
    def b(self, c, *, d): nonlocal e; raise f from g
try:
    assert h, i
except (j, k) as l:
    m += n
except o:
    pass
else:
    continue_ = lambda p, *q, r=1, **s: t if u else v
finally:
    w = yield_ = not x and -y or z @ a < b <= c is not d
with e as (f, g):
    while h:
        break
    else:
        print(f"i{j!r:>{k}}l", *m, **n)
if (o := p): q
for r, *s in t: u
match v:
    case w.x | 1 | None | True | False: pass
    case [y, *z, _] if a: pass
    case {"b": c, **d}: pass
    case E(f, g=h) as i: pass
"""
NEWER = {
    (3, 12): "type A[T: int, *U, **V] = B[T]\ndef f[T](x: T): ...\nclass C[T](D): ...\n",
    (3, 13): "type A[T = int] = B[T]\n",
    (3, 14): "t'{a!r:{b}}c'\n",
}


def check(tree: ast.AST) -> None:
    standard = [node for node in ast.walk(tree) if not isinstance(node, LEFT_OUT)]
    assert list(walk(tree)) == standard


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_same_nodes_in_the_same_order(path: Path) -> None:
    check(ast.parse(path.read_text()))


def test_rare_statements() -> None:
    tree = ast.parse(RARE)
    check(tree)
    check(ast.parse("try:\n    a\nexcept* b as c:\n    d\n"))
    check(ast.parse("a.b + c", mode="eval"))
    seen = {type(node).__name__ for node in ast.walk(tree)}
    assert {"MatchMapping", "MatchClass", "MatchStar", "GeneratorExp", "AsyncFor", "FormattedValue", "Slice"} <= seen


@pytest.mark.parametrize("version", NEWER)
def test_newer_syntax(version: tuple[int, int]) -> None:
    if sys.version_info < version:
        pytest.skip(f"Python {version[0]}.{version[1]} syntax")
    check(ast.parse(NEWER[version]))


def test_a_node_made_by_hand_may_lack_fields() -> None:
    name = ast.Name("x")
    made = ast.Return()
    assert list(walk(made)) == [made]
    assert list(walk(ast.Expr(name)))[1] is name
