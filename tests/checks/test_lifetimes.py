"""CL301 and CL302: temporaries whose release lowers the peak of forward, and those whose release doesn't.

Every program is run too, as it stands and with the ``del`` in place, under the meter: the claim is about its peak.
"""

from __future__ import annotations

import ast
import random
import textwrap

import pytest

from cachelint.runtime import Meter
from tests.checks.conftest import Find, function

torch = pytest.importorskip("torch")

BACKWARD = "x, w, v, g = ctx.saved_tensors\nreturn grad, grad, grad, grad"
SAVE = "ctx.save_for_backward(x, w, v, g)\n"


def peak(body: str) -> int:
    """The peak of a forward, in bytes; x, w, v, hidden values and results are all [64, 64] but for the vector g."""
    scope: dict[str, object] = {"torch": torch}
    exec("def forward(x, w, v, g):\n" + textwrap.indent(textwrap.dedent(body), "    "), scope)
    x, w, v = (torch.ones(64, 64, device="meta") for _ in range(3))
    g = torch.ones(64, device="meta")
    with Meter({"x": x, "w": w, "v": v, "g": g}) as meter:
        kept = scope["forward"](x, w, v, g)  # type: ignore[operator]
    assert kept is not None
    return meter.report().peak


def released(body: str, *names: str) -> str:
    """The body with ``del`` after the statement that uses the names last."""
    tree = ast.parse(body)
    uses = [
        number
        for number, statement in enumerate(tree.body)
        if any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(statement))
    ]
    tree.body.insert(max(uses) + 1, ast.parse(f"del {', '.join(names)}").body[0])
    return ast.unparse(tree)


WASTED = {
    "a hidden activation": ("h = x @ w\na = torch.relu(h)\nreturn (a @ v, a)", ["h"], "CL302"),
    "a float mask": ("m = (x > 0).to(x.dtype)\ny = x @ w * m\nreturn (y + y @ v, y)", ["m"], "CL302"),
    "a bias added out of place": ("h = x @ w\na = h @ v\na = a + g\nreturn a", ["h"], "CL302"),
    "a buffer like the input": (
        "b = torch.empty_like(x)\nb.copy_(x)\ny = b.exp_() @ w\nreturn (y @ v, y)", ["b"], "CL302"),
    "views of one projection": (
        "h = x @ torch.cat([w, v], -1)\np, q = h.chunk(2, -1)\ns = p @ q.t()\nreturn (s.softmax(-1) @ v, s)",
        ["h", "p", "q"], "CL302"),
    "joined parts": ("a = x @ w\nb = x @ v\nj = torch.cat([a, b])\nreturn j * 2 + j", ["a", "b"], "CL301"),
    "a product whose operands come from unseen code": (
        "import mylib\nq = mylib.quantize(x)\ny = q @ w\nreturn (y + g, y)", ["q"], "CL302"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "names", "code"), WASTED.values(), ids=WASTED)
def test_a_release_that_lowers_the_peak_is_asked_for(
    find: Find, body: str, names: list[str], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find(function(SAVE + body, BACKWARD, parameters="x, w, v, g"), "CL301", "CL302")
    assert len(found) == 1
    expected = "cat(" if code == "CL301" else f"{names[0]} ="
    assert expected in found[0]
    monkeypatch.setitem(__import__("sys").modules, "mylib", _Unseen)
    assert peak(released(body, *names)) < peak(body)


class _Unseen:
    """What stands for a library of kernels."""

    @staticmethod
    def quantize(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x).copy_(x)

    @staticmethod
    def wrap(q: torch.Tensor) -> torch.Tensor:
        return q.view(-1)

    @staticmethod
    def make_box(q: torch.Tensor, like: torch.Tensor) -> list[torch.Tensor]:
        return [q.view_as(like)]

    class Box:
        def __init__(self, q: torch.Tensor) -> None:
            self.q = q


NEEDED = {
    "only row statistics follow": ("h = x @ w\ns = h.sum(-1)\nreturn torch.log(s) + 1", ["h"]),
    "a row statistic": ("s = x.amax(-1)\nr = s * 2\ny = x @ w\nreturn (y + r.unsqueeze(-1), y @ v, r)", ["s"]),
    "a value a row picks": (
        "i = torch.zeros(64, dtype=torch.int64, device=x.device)\np = x[torch.arange(64, device=x.device), i]\n"
        "r = p - 1\ny = (x @ w).exp()\nreturn (y, r)", ["p"]),
    "in place afterwards": ("h = x @ w\na = h @ v\na += g\na.mul_(2)\nreturn a", ["h"]),
    "a mask of truth values": ("m = x > 0\ny = torch.where(m, x, w)\nreturn (y @ v @ w, y)", ["m"]),
    "the peak lies before": (
        "h = x @ w\na = (h + 1) * (h - 1) * (h + 2).exp() * ((h * 3) + (h * 4) * (h * 5))\ns = a.sum(0)\nreturn s * g",
        ["h"]),
    "more is alive earlier": (
        "h = x @ w\nt = (h * 2) @ ((h * 3) + (h * 4) * (h * 5))\ns = t.sum(-1)\ndel t\nreturn (x * s, s)", ["h"]),
    "a cast that may give the same tensor": ("h = x @ w\na = h.sum(0)\nreturn (a, x.to(x.dtype))", ["h"]),
    "a shape": ("n = (1, 1) + tuple(x.shape)\ny = x.reshape(n)\nreturn (y @ w, y)", ["n"]),
    "a wrapper holds it": (
        "import mylib\nq = mylib.quantize(x)\nb = mylib.wrap(q)\ny = x @ w\nreturn (y, b)", ["q"]),
    "a constructor is given it": (
        "import mylib\nh = x @ w\nb = mylib.Box(h)\ny = x @ v\nreturn (y, b)", ["h"]),
    "a view of it is put into an object": (
        "import mylib\nh = x @ w\nb = mylib.make_box(h, like=x)\ny = x @ v\nreturn (y, b)", ["h"]),
    "a vector": ("r = torch.sqrt(g + 1)\ns = 1 / r\ny = x @ w\nreturn (y * s, y)", ["r"]),
    "saved": ("h = x @ w\nctx.save_for_backward(x, w, v, h)\na = torch.relu(h)\nreturn (a @ v, a)", []),
    "returned": ("h = x @ w\na = torch.relu(h)\nreturn (a @ v, h)", ["h"]),
}  # fmt: skip


@pytest.mark.parametrize(("body", "names"), NEEDED.values(), ids=NEEDED)
def test_a_release_that_lowers_nothing_is_not_asked_for(
    find: Find, body: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = body if "ctx." in body else SAVE + body
    assert find(function(source, BACKWARD, parameters="x, w, v, g"), "CL301", "CL302") == []
    monkeypatch.setitem(__import__("sys").modules, "mylib", _Unseen)
    if names and "return" not in released(body, *names).splitlines()[-2]:
        whole = peak(body)
        assert whole - peak(released(body, *names)) < 64 * 64 * 4  # less than one large tensor


def test_either_of_two_releases_is_enough_and_both_are_named(find: Find) -> None:
    body = "a = x @ w\nb = x @ v\ny = a @ b\ny = y + g\nreturn y"
    found = find(function(SAVE + body, BACKWARD, parameters="x, w, v, g"), "CL302")
    assert found == ["a = x @ w", "b = x @ v"]
    whole = peak(body)
    assert peak(released(body, "a")) < whole
    assert peak(released(body, "b")) < whole


def test_a_release_that_is_worth_nothing_without_another_is_named_with_it(find: Find) -> None:
    body = "a = x @ w\nb = torch.exp(a)\nc = torch.relu(b)\nd = torch.tanh(c)\nreturn (torch.abs(d), d)"
    found = find(function(SAVE + body, BACKWARD, parameters="x, w, v, g"), "CL302")
    assert found == ["a = x @ w", "b = torch.exp(a)", "c = torch.relu(b)"]
    tight = released(released(released(body, "a"), "b"), "c")
    assert peak(tight) < peak(released(body, "a")) < peak(body)


def program(seed: int) -> str:
    """A straight-line forward over tensors of one size: products, pointwise operators, statistics, edits in place."""
    rng = random.Random(seed)
    names = ["x", "w", "v"]
    made: list[str] = []
    lines = []
    for number in range(rng.randint(3, 8)):
        name = f"t{number}"
        a, b = rng.choice(names[-4:]), rng.choice(names)
        form = rng.choice(
            [
                f"{a} @ {b}",
                f"torch.relu({a})",
                f"{a} * 2 + {b}",
                f"torch.exp({a}) * ({b} + 1)",
                f"{a}.sum(-1)",
                f"{a} > 0",
            ]
        )
        lines.append(f"{name} = {form}")
        if ".sum" not in form and ">" not in form:
            names.append(name)
            made.append(name)
            if rng.random() < 0.2:
                lines.append(f"{name}.mul_(2)")
    out = rng.sample(made, min(len(made), rng.randint(1, 2))) or ["x * 2"]
    return "\n".join([*lines, f"return ({', '.join(out)}, {rng.choice(names)} + 1)"])


@pytest.mark.parametrize("seed", range(60))
def test_what_is_asked_for_lowers_the_peak_of_programs_nobody_wrote(find: Find, seed: int) -> None:
    body = program(seed)
    found = find(function("ctx.save_for_backward(x, w, v, g)\n" + body, BACKWARD, parameters="x, w, v, g"), "CL302")
    names = [line.partition(" ")[0] for line in found]
    tight = body
    for name in names:
        tight = released(tight, name)
    whole, least = peak(body), peak(tight)
    for name in names:
        others = body
        for other in names:
            others = released(others, other) if other != name else others
        assert peak(released(body, name)) < whole or peak(others) > least, (name, body)
    assert not names or least < whole
