"""Which parameters a kernel stores through: by its text, quickly and never too few, and by its tree, exactly."""

from __future__ import annotations

import ast

import pytest

from cachelint.infer.kernels import _near_stores, _written

BODIES = {
    "plain": ("tl.store(out + offset, tl.load(x + offset))", {"out"}),
    "in brackets": ("tl.store((out + row * stride) + offset, tl.load(x))", {"out"}),
    "by a pointer": ("p = out + offset\n    tl.store(p, tl.load(x + offset), mask=mask)", {"out"}),
    "moved along": ("out += row * stride\n    x += row * stride\n    tl.store(out, tl.load(x))", {"out"}),
    "in two steps": ("base = out\n    p = base + offset\n    y = x + offset\n    tl.store(p, tl.load(y))", {"out"}),
    "over lines": (
        "p = (\n        out\n        + offset\n    )\n    q = x + offset\n    tl.store(p, tl.load(q))",
        {"out"},
    ),
    "a block pointer": (
        "p = tl.make_block_ptr(\n        base=out + row,\n        shape=(n,),\n    )\n    tl.store(p, tl.load(x))",
        {"out"},
    ),
    "a block pointer in place": (
        "tl.store(\n        tl.make_block_ptr(base=out, shape=(n, 2)), tl.load(x), boundary_check=(0, 1))",
        {"out"},
    ),
    "a descriptor": ("d = tl.make_tensor_descriptor(out, (n,))\n    d.store([0], tl.load(x))", {"out"}),
    "an atomic": ("tl.atomic_add(out + offset, tl.load(x + offset))", {"out"}),
    "one of two": ("p = out if flag else x\n    tl.store(p, 0)", {"out", "x"}),
    "read only": ("y = tl.load(x) + tl.load(out)", set()),
    "a name that begins alike": ("out_of_range = x\n    tl.store(out, tl.load(out_of_range))", {"out"}),
    "bound anew": ("p = x + row\n    y = tl.load(p)\n    p = out + row\n    tl.store(p, y)", {"out"}),
    "bound anew in a loop": (
        "if flag:\n        p = x + row\n        y = tl.load(p)\n    for i in range(n):\n        p = out + i\n        tl.store(p, y)",
        {"out"},
    ),
    "bound in one branch": ("p = out\n    if flag:\n        p = x\n    tl.store(p, 0)", {"out", "x"}),
    "bound in both branches": (
        "p = x\n    if flag:\n        p = out\n    else:\n        p = out + row\n    tl.store(p, 0)",
        {"out"},
    ),
    "exchanged in a loop": (
        "p = out\n    q = x\n    for i in range(n):\n        tl.store(p, 0)\n        p = q\n    tl.load(q)",
        {"out", "x"},
    ),
    "in the head of a loop": ("while tl.atomic_cas(out, 0, 1) == 1:\n        y = tl.load(x)", {"out"}),
    "inside with": ("p = x\n    with tl.scope():\n        p = out\n    tl.store(p, 0)", {"out"}),
    "annotated": ("p: tl.tensor = out + offset\n    tl.store(p, 1)", {"out"}),
}


def kernel(body: str) -> str:
    return f"def kernel(x, out, offset, row, stride, mask, n, flag):\n    {body}\n"


@pytest.mark.parametrize("form", BODIES)
def test_forms_of_stores(form: str) -> None:
    body, expected = BODIES[form]
    text = kernel(body)
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    assert _written(node) == expected
    assert expected <= _near_stores(text)


def test_the_text_tells_what_is_only_read() -> None:
    """What the quick reading is for: most kernels need not be parsed."""
    for form in ("plain", "moved along", "over lines", "in two steps", "read only"):
        assert "x" not in _near_stores(kernel(BODIES[form][0]))
