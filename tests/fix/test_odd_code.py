"""Legal Python that few people write: whatever a fix makes of it, the program gives the same numbers.

``tests/data/odd_code.txt`` has a case behind each ``===``: how forward keeps ``t`` and ``u``, then its other parts, each
behind ``---``, on the same line or below. ``t`` and ``u`` are how backward reads the two, ``first`` stands at the top of
backward, ``before`` above the class, ``body`` in it; ``returns`` is how forward ends.
"""

from __future__ import annotations

import sys
import textwrap
import types
from pathlib import Path

import pytest
import torch

from tests.fix.differential import fixed, module_of

SOURCE = """\
import torch
{before}

class Fn(torch.autograd.Function):
{body}
    @staticmethod
    def forward(ctx, x, w, flag):
        t = torch.tanh(x)
        u = x @ w
{store}
        ctx.x = x
        ctx.w = w
        {returns}

    @staticmethod
    def backward(ctx, g):
{first}
        gu = g * {t}
        gt = g * {u}
        return gt * (1 - {t} * {t}) + gu @ ctx.w.t(), ctx.x.t() @ gu, None
"""


def case(text: str) -> str:
    """The module of one case."""
    store, *rest = ("\n" + text).split("\n--- ")
    parts = {"t": "ctx.t", "u": "ctx.u", "first": "", "before": "", "body": "", "returns": "return t * u"}
    for part in rest:
        head, _, below = part.partition("\n")
        name, _, beside = head.partition(": ")
        parts[name] = f"{beside}{below}"
    for name, margin in (("first", 8), ("body", 4)):
        parts[name] = textwrap.indent(parts[name], " " * margin)
    return SOURCE.format(store=textwrap.indent(store.strip("\n"), " " * 8), **parts)


_TEXT = Path(__file__).parents[1].joinpath("data", "odd_code.txt").read_text()
CASES = {
    name: case(body.rstrip("\n")) for name, _, body in (part.partition("\n") for part in _TEXT.split("\n=== ")[1:])
}


def numbers(text: str, flag: bool) -> list[torch.Tensor]:
    module = module_of(text)
    x = torch.tensor([[0.3, -1.2, 0.5], [2.0, 0.7, -0.1], [0.2, 0.9, 1.4]], dtype=torch.float64)
    w = (x.t() * 0.7 + 0.1).requires_grad_()
    x.requires_grad_()
    y = module.Fn.apply(x, w, flag)
    return [y.detach(), *torch.autograd.grad(y.sum(), (x, w))]


@pytest.mark.parametrize("unsafe", [False, True], ids=["safe", "unsafe"])
@pytest.mark.parametrize("name", CASES)
def test_odd_code_gives_the_same_numbers(name: str, unsafe: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "program", types.ModuleType("program"))  # dataclasses look their module up
    text = CASES[name]
    outcome = fixed(text, codes="CL", unsafe=unsafe)
    assert not [r for r in outcome.refused if r.kind == "internal error"]
    for flag in (True, False):
        try:
            before = numbers(text, flag)
        except AttributeError:
            continue  # a field is unset on this path
        assert all(map(torch.equal, before, numbers(outcome.text, flag))), outcome.text
    assert fixed(outcome.text, codes="CL", unsafe=unsafe).text == outcome.text
