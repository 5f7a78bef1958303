"""CL110, CL202, CL204 to CL208 and CL216: layers, their children, and the live inputs of backward."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from cachelint.config import Configs
from cachelint.runner import Options, run, types_of
from tests.checks.conftest import Find

HEAD = "from cachelint.runtime import Node, SaverAware\n\n"

SOFTMAX = """
class Softmax(SaverAware, Node):
    def forward(self, x):
        self.y = torch.softmax(x, -1)
        self.save_for_backward(self.y)
        return self.y

    def backward(self, grad, x):
        return (self.y * (grad - (grad * self.y).sum(-1, keepdim=True)),)

"""

SQUARE = """
class Square(Node):
    def forward(self, x):
        self.x = x
        return x * x

    def backward(self, grad, x=None):
        x = x if x is not None else self.x
        return (2 * x * grad,)

"""


def parent(forward: str, backward: str, init: str = "self.child = Softmax()") -> str:
    """A composite with these bodies."""
    bodies = {"__init__(self)": init, "forward(self, x)": forward, "backward(self, grad, x)": backward}
    parts = [
        f"    def {head}:\n" + textwrap.indent(textwrap.dedent(body).strip(), " " * 8) for head, body in bodies.items()
    ]
    return "class Parent(SaverAware, Node):\n" + "\n\n".join(parts) + "\n"


def rows(source: str, folder: Path) -> dict[str, str]:
    """The Class column of each type."""
    (folder / "example.py").write_text("import torch\n" + HEAD + source, encoding="utf-8")
    configs = Configs(str(folder), {}, isolated=True)
    report = run([str(folder)], configs, Options(jobs=1, use_cache=False), cwd=str(folder))
    return {kind.type: kind.row for _, body in report.bodies for kind in types_of(body)}


# ---- rows


@pytest.mark.parametrize(
    ("init", "forward", "expected"),
    [
        ("self.child = Softmax()", "return self.child.forward(x)", "SAVE (fan-out)"),
        ("self.child = Softmax()", "return self.child(x)", "SAVE (fan-out)"),
        ("self.child = [Softmax() for _ in range(3)]", "for c in self.child:\n    x = c.forward(x)\nreturn x", "SAVE (fan-out)"),
        ("self.child = {'a': Softmax()}", "return self.child['a'].forward(x)", "SAVE (fan-out)"),
        ("self.child = None", "if self.child is None:\n    self.child = Softmax()\nreturn self.child.forward(x)", "SAVE (fan-out)"),
        ("self.child = Softmax()", "self.n = x.ndim\nreturn self.child.forward(x)", "SAFE + SAVE (fan-out)"),
        ("self.child = Softmax()", "self.n = x\nreturn self.child.forward(x)", "RECOMPUTE + SAVE (fan-out)"),
        ("self.child = Softmax()", "self.n = self.child.forward(x)\nreturn self.n", "SAVE"),
        ("self.child = Softmax()", "return x * 2", "SAFE"),
        ("self.child = Square()", "return self.child.forward(x)", "SAFE"),
    ],
    ids=["attribute", "called", "list", "dict", "lazy", "own host field", "own input", "own output", "never called", "saves nothing"],
)  # fmt: skip
def test_the_row_of_a_composite(tmp_path: Path, init: str, forward: str, expected: str) -> None:
    source = (
        SOFTMAX
        + SQUARE
        + parent(forward, "return grad * getattr(self, 'n', 1)", init).replace(
            "getattr(self, 'n', 1)", "self.n" if "self.n" in forward else "1"
        )
    )
    found = rows(source, tmp_path)
    assert found["Parent"] == expected


def test_a_grandchild_counts(tmp_path: Path) -> None:
    middle = parent("return self.child.forward(x)", "return self.child.backward(grad, x)").replace("Parent", "Middle")
    outer = parent("return self.child.forward(x)", "return self.child.backward(grad, x)", "self.child = Middle()")
    assert rows(SOFTMAX + middle + outer, tmp_path)["Parent"] == "SAVE (fan-out)"


def test_layers_that_hold_each_other_come_to_an_end(tmp_path: Path) -> None:
    source = """
class A(Node):
    def __init__(self):
        self.other = B()
    def forward(self, x):
        return self.other.forward(x)
    def backward(self, grad, x):
        return self.other.backward(grad, x)

class B(Node):
    def __init__(self):
        self.other = A()
    def forward(self, x):
        return self.other.forward(x)
    def backward(self, grad, x):
        return self.other.backward(grad, x)
"""
    assert rows(source, tmp_path) == {"A": "SAFE", "B": "SAFE"}


# ---- CL110


@pytest.mark.parametrize(
    ("keep", "expected"),
    [("self.kept = torch.softmax(x, -1)", 1), ("self.kept = x.shape[0]", 0), ("self.kept = self.scale", 0)],
    ids=["a tensor", "a host value", "from the constructor"],
)
def test_a_helper_that_keeps_state(find: Find, keep: str, expected: int) -> None:
    helper = f"""
class Helper:
    def __init__(self):
        self.scale = 2.0

    def push(self, x):
        {keep}
        return x * 2

    def pull(self, grad):
        return grad * self.kept

"""
    source = (
        HEAD + helper + parent("return self.child.push(x)", "return self.child.pull(grad)", "self.child = Helper()")
    )
    assert len(find(source, "CL110")) == expected


# ---- CL202 and CL206


@pytest.mark.parametrize(
    ("backward", "stale", "ignored"),
    [
        ("x = self.x or x\n        return (2 * x * grad,)", 1, 0),
        ("x = x or self.x\n        return (2 * x * grad,)", 0, 0),
        ("x = x if self.x is None else self.x\n        return (2 * x * grad,)", 1, 0),
        ("if self.x is not None and x is None:\n            x = self.x\n        return (2 * x * grad,)", 0, 0),
        ("x = self.x\n        return (2 * x * grad,)", 0, 0),
        ("return (2 * self.x * grad,)", 0, 1),
        ("return (2 * self.x * grad + 0 * x,)", 0, 0),
    ],
    ids=["or", "live first", "ifexp turned round", "asks first", "overwritten", "ignored", "both"],
)
def test_the_field_before_the_argument(find: Find, backward: str, stale: int, ignored: int) -> None:
    source = (
        HEAD
        + "class L(Node):\n    def forward(self, x):\n        self.x = x\n        return x * x\n\n"
        + f"    def backward(self, grad, x=None):\n        {backward}\n"
    )
    assert len(find(source, "CL202")) == stale
    assert len(find(source, "CL206")) == ignored


def test_an_underscore_says_that_it_is_ignored(find: Find) -> None:
    source = HEAD + SQUARE.replace("x=None", "_x=None").replace("x if x is not None else self.x", "self.x")
    assert find(source, "CL206") == []


# ---- CL204


@pytest.mark.parametrize(
    ("init", "forward", "expected"),
    [
        ("self.child = None", "self.child = Softmax()\nreturn self.child.forward(x)", 1),
        ("pass", "child = Softmax()\nself.child = child\nreturn child.forward(x)", 1),
        ("self.child = None", "self.child = Square()\nreturn self.child.forward(x)", 0),
        ("self.child = None", "self.child = Softmax()\nself.child.set_saver(self.saver)\nreturn self.child.forward(x)", 0),
        ("self.child = Softmax()", "return self.child.forward(x)", 0),
    ],
    ids=["lazy", "by a name", "registers nothing", "handed over", "wired"],
)  # fmt: skip
def test_savers_for_children(find: Find, init: str, forward: str, expected: int) -> None:
    source = HEAD + SOFTMAX + SQUARE + parent(forward, "return self.child.backward(grad, x)", init)
    assert len(find(source, "CL204")) == expected


def test_a_contract_that_wires_nothing_needs_it_by_hand(find: Find) -> None:
    source = HEAD + SOFTMAX + parent("return self.child.forward(x)", "return self.child.backward(grad, x)")
    assert find(source, "CL204", contract={"wires-children": False}) == ["return self.child.forward(x)"]


# ---- CL205


@pytest.mark.parametrize(
    ("child", "call", "expected"),
    [
        ("Square", "self.child.backward(grad)", 1),
        ("Square", "self.child.backward(grad, x)", 0),
        ("Square", "self.child.backward(grad, x=x)", 0),
        ("Square", "self.child.backward(*[grad, x])", 0),
        ("Softmax", "self.child.backward(grad)", 1),
    ],
    ids=["left out", "given", "by keyword", "by star", "required"],
)
def test_live_inputs_of_a_child(find: Find, child: str, call: str, expected: int) -> None:
    source = (
        HEAD + SOFTMAX + SQUARE + parent("return self.child.forward(x)", f"return {call}", f"self.child = {child}()")
    )
    assert len(find(source, "CL205")) == expected


@pytest.mark.parametrize(
    ("forward", "backward", "expected"),
    [
        ("z = x + y; return self.child.forward(z)", "return self.child.backward(g, x)", 1),
        ("x = x * y; return self.child.forward(x)", "return self.child.backward(g, x)", 1),
        ("x = self.first.forward(x); return self.child(x)", "return self.child.backward(g, x)", 1),
        ("z = x + y; return self.child.forward(x, z)", "return self.child.backward(g, x, y)", 1),
        ("z = x; return self.child.forward(z)", "return self.child.backward(g, x)", 0),
        ("z = x.contiguous(); return self.child.forward(z)", "return self.child.backward(g, x)", 0),
        ("z = x + 0; return self.child.forward(z)", "return self.child.backward(g, x)", 0),
        ("z = x + y; return self.child.forward(z)", "z = x + y; return self.child.backward(g, z)", 0),
        ("z = x + y; return self.child.forward(z)", "x = x + y; return self.child.backward(g, x)", 0),
        ("z = x + y; return self.child.forward(z)", "return self.child.backward(g, self.z)", 0),
        ("z = x + y; return self.child.forward(z)", "return self.other.backward(g, x)", 0),
        ("z = x + y; return self.child.forward(z) + self.child.forward(x)", "return self.child.backward(g, x)", 0),
        ("for _ in range(2): x = self.child.forward(x + y)", "return self.child.backward(g, x)", 0),
        ("z = x + y; return self.child.forward(z)", "return self.child.backward(g, *[x])", 0),
        ("return self.child.forward(x + y)", "return self.child.backward(g, x)", 0),
    ],
)
def test_a_child_is_handed_what_its_forward_got(find: Find, forward: str, backward: str, expected: int) -> None:
    source = f"""
    class Layer:
        def __init__(self, child, first, other):
            self.child, self.first, self.other = child, first, other

        def forward(self, x, y):
            {forward}

        def backward(self, g, x, y):
            {backward}
    """
    assert len(find(source, "CL205")) == expected


# ---- CL207


@pytest.mark.parametrize(
    ("backward", "expected"),
    [
        ("self.child.forward(x)\nreturn self.child.backward(grad, x)", 1),
        ("_ = self.forward(x)\nreturn grad * self.child.y", 1),
        ("y = self.child.forward(x)\nreturn grad * y", 0),
        ("with torch.enable_grad():\n    self.forward(x)\nreturn grad", 0),
        ("self.prepare(x)\nreturn grad", 0),
    ],
    ids=["a child's", "its own", "the value is used", "differentiated", "another method"],
)
def test_forward_in_backward(find: Find, backward: str, expected: int) -> None:
    source = HEAD + SOFTMAX + parent("return self.child.forward(x)", backward)
    assert len(find(source, "CL207")) == expected


# ---- CL208


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("if self.training:\n    return x * 2\nself.save_for_backward(x)\nreturn x", 1),
        ("if self.training:\n    pass\nelse:\n    self.save_for_backward(x)\nreturn x", 1),
        ("if not self.training and x.ndim:\n    self.save_for_backward(x)\nreturn x", 1),
        ("if self.training:\n    self.save_for_backward(x)\nreturn x", 0),
        ("if x.ndim:\n    self.save_for_backward(x)\nreturn x", 0),
    ],
    ids=["behind the return", "else", "and", "training", "another question"],
)
def test_registrations_in_evaluation(find: Find, forward: str, expected: int) -> None:
    source = HEAD + parent(forward, "return grad * x", "pass")
    assert len(find(source, "CL208")) == expected


def test_a_method_for_prediction(find: Find) -> None:
    source = HEAD + SOFTMAX + (
        "    @torch.no_grad()\n    def sample(self, x):\n        self.save_for_backward(x)\n        return x\n\n"
        "    def predict(self, x):\n        self.save_for_backward(x)\n        return x\n\n"
        "    def step(self, x):\n        self.save_for_backward(x)\n        return x\n"
    )  # fmt: skip
    assert find(source, "CL208") == ["self.save_for_backward(x)", "self.save_for_backward(x)"]


# ---- CL216


@pytest.mark.parametrize(
    ("init", "forward", "expected"),
    [
        ("self.child = Softmax()", "return self.child(x) + self.child(-x)", 1),
        ("self.child = Softmax()", "for _ in range(3):\n    x = self.child.forward(x)\nreturn x", 1),
        ("self.child = Softmax()", "return [self.child.forward(part) for part in x]", 1),
        ("self.child = Softmax()", "while x.sum() > 1:\n    x = self.child.forward(x)\nreturn x", 1),
        ("self.child = [Softmax(), Softmax()]", "for c in self.child:\n    x = c.forward(x)\nreturn x", 0),
        (
            "self.child = Softmax()",
            "if x.ndim > 1:\n    return self.child.forward(x)\nreturn self.child.forward(-x)",
            0,
        ),
        (
            "self.child = Softmax()",
            "y = self.child.forward(x)\nself.child.backward(y, x)\nreturn self.child.forward(y)",
            0,
        ),
    ],
    ids=["twice", "loop", "comprehension", "while", "one each", "paths", "backward between"],
)
def test_one_instance_twice(find: Find, init: str, forward: str, expected: int) -> None:
    source = HEAD + SOFTMAX + parent(forward, "return self.child.backward(grad, x)", init)
    assert len(find(source, "CL216")) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a = layer.forward(x)\n    b = layer.forward(-x)\n    layer.backward(a, x)", 1),
        ("a = layer.forward(x)\n    layer.backward(a, x)\n    b = layer.forward(-x)\n    layer.backward(b, x)", 0),
        ("a = layer.forward(x)\n    b = layer.forward(-x)", 0),
    ],
    ids=["no backward between", "in turn", "no backward at all"],
)
def test_code_that_makes_a_layer(find: Find, body: str, expected: int) -> None:
    source = HEAD + SOFTMAX + f"def step(x):\n    layer = Softmax()\n    {body}\n    return a\n"
    assert len(find(source, "CL216")) == expected
