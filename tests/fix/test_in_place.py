"""A value that forward edits in place after it was computed cannot be derived again from its inputs."""

from __future__ import annotations

import re

import pytest
import torch

from tests.fix.differential import fixed, module_of

SOURCE = """\
import torch
import torch.nn.functional as F


def halve(t):
    t.mul_(0.5)


class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        t = x * 3.0
        y = t * t
        {keep}
        {edit}
        {late}
        return y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.t
"""
EDITS = [
    "t.mul_(2.0)",
    "t.view(-1).mul_(2.0)",
    "t[:].mul_(2.0)",
    "t[0] = 1.0",
    "t.view(-1)[0] = 1.0",
    "t[0][1] += 1.0",
    "t.T[0] *= 2.0",
    "t += 1.0",
    "t.view(-1)[1:] += 1.0",
    "torch.relu_(t)",
    "torch.relu_(t[0])",
    "F.relu(t, inplace=True)",
    "torch.mul(x, 7.0, out=t)",
    "torch.mul(x[0], 7.0, out=t[0])",
    "torch.mul(x, 7.0, out=t.view_as(x))",
    "row = t[0]; row.add_(1.0)",
    "flat = t.view(-1); part = flat[:2]; part.zero_()",
    "t.data.mul_(2.0)",
    "t.detach().mul_(2.0)",
    "t.copy_(x)",
    "t.index_fill_(0, torch.tensor([0]), 4.0)",
    "for row in t: row.add_(1.0)",
    "[row.add_(1.0) for row in t]",
    "first, *rest = t; first.add_(1.0)",
    "a, b = t.unbind(0); a.add_(1.0)",
    "rows = list(t); rows[0].add_(1.0)",
    "halve(t)",
    "halve(t[0])",
    "halve(t.view(-1))",
    "torch._foreach_mul_([t], 2.0)",
    "with torch.no_grad(): t.add_(1.0)",
    "t.mul_(2.0) if x.ndim else None",
    "(lambda: t.add_(1.0))()",
    "torch.nn.init.ones_(t)",
    "t.set_(x * 5.0)",
    "getattr(t, 'mul_')(2.0)",
    "t.__imul__(2.0)",
    "t.clamp_min_(0.5).mul_(2.0)",
    "torch.Tensor.mul_(t, 2.0)",
    "s = t; s.mul_(2.0)",
    "s = t.reshape(4); s.mul_(2.0)",
    "s = t.contiguous(); s.mul_(2.0)",
    "s = t.to(x.dtype); s.mul_(2.0)",
    "s = x.new_zeros(2, 2) if x.ndim > 5 else t; s.mul_(2.0)",
]


@pytest.mark.parametrize("early", [True, False], ids=["kept before", "kept after"])
@pytest.mark.parametrize("edit", EDITS)
def test_the_gradient_stays_what_it_was(edit: str, early: bool) -> None:
    keep = "ctx.t = t"
    same(SOURCE.format(keep=keep if early else "pass", edit=edit, late="pass" if early else keep))


@pytest.mark.parametrize("edit", EDITS)
def test_the_gradient_stays_what_it_was_without_a_local(edit: str) -> None:
    text = SOURCE.format(keep="pass", edit=edit, late="pass").partition("class Fn")
    text = text[0] + text[1] + re.sub(r"(?<![.\w])t\b", "ctx.t", text[2])
    same(text)


def same(text: str) -> None:
    x = torch.tensor([[0.3, -1.2], [2.0, 0.7]], dtype=torch.float64, requires_grad=True)
    outcome = fixed(text)
    found = []
    for version in (text, outcome.text):
        y = module_of(version).Fn.apply(x)
        found.append((y.detach(), *torch.autograd.grad(y.sum(), x)))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True)), outcome.text


def test_the_edits_matter() -> None:
    """Each edit changes what is kept: derived from the input, the gradient would be another."""
    x = torch.tensor([[0.3, -1.2], [2.0, 0.7]], dtype=torch.float64, requires_grad=True)
    for edit in EDITS:
        y = module_of(SOURCE.format(keep="ctx.t = t", edit=edit, late="pass")).Fn.apply(x)
        assert not torch.equal(torch.autograd.grad(y.sum(), x)[0], 3.0 * x), edit


LAYER = """\
import torch
import torch.nn.functional as F
from torch import Tensor

from cachelint.runtime import Node


def halve(t):
    t.mul_(0.5)


class Layer(Node):
    def __init__(self):
        self.t = None

    def forward(self, x: Tensor) -> Tensor:
        t = x * 3.0
        y = t * t
        {keep}
        {edit}
        {late}
        return y

    def backward(self, grad: Tensor, x: Tensor):
        return (grad * self.t,)
"""


@pytest.mark.parametrize("where", ["kept before", "kept after", "no local"])
@pytest.mark.parametrize("edit", EDITS)
def test_a_layer_gives_the_same_gradient(edit: str, where: str) -> None:
    keep = {"kept before": "self.t = t", "kept after": "pass", "no local": "pass"}[where]
    text = LAYER.format(keep=keep, edit=edit, late="self.t = t" if where == "kept after" else "pass")
    if where == "no local":
        head, word, body = text.partition("class Layer")
        text = head + word + re.sub(r"(?<![.\w])t\b", "self.t", body)
    x = torch.tensor([[0.3, -1.2], [2.0, 0.7]], dtype=torch.float64)
    found = []
    for version in (text, fixed(text, codes="CL").text):
        layer = module_of(version).Layer()
        found.append((layer.forward(x.clone()), *layer.backward(torch.ones_like(x), x.clone())))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
