"""What backward may read of a tensor that went through save_for_backward: the same as of the object on ctx."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import Tensor

from cachelint.fix.functions import fields
from tests.fix.differential import fixed

ADDRESSES = {"data_ptr", "untyped_storage"}
SPARSE_ONLY = {"_indices", "_values", "_nnz"}
READ = sorted(fields._PLAIN - ADDRESSES - SPARSE_ONLY)


class Both(torch.autograd.Function):
    """Keeps one tensor in both ways; backward reads both."""

    seen: dict[str, tuple[Any, Any]]

    @staticmethod
    def forward(ctx: Any, x: Tensor, which: str) -> Tensor:
        y = x * 2
        kept = {"input": x, "view": x[0:2], "intermediate": x.detach() * 3, "output": y}[which]
        ctx.kept = kept
        ctx.save_for_backward(kept)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (unpacked,) = ctx.saved_tensors
        Both.seen = {name: (plain(ctx.kept, name), plain(unpacked, name)) for name in READ}
        return grad * 2, None


def plain(value: Tensor, name: str) -> Any:
    """An attribute, or what a method without arguments gives; views by what they hold."""
    try:
        found = getattr(value, name)
        found = found() if callable(found) else found
    except (RuntimeError, AttributeError) as error:  # what this version of PyTorch, or a plain tensor, does not have
        return type(error)
    return found.tolist() if isinstance(found, Tensor) else found


@pytest.mark.parametrize("hooks", [False, True])
@pytest.mark.parametrize("leaf", [False, True])
@pytest.mark.parametrize("which", ["input", "view", "intermediate", "output"])
def test_unpacking_gives_the_same_answers(which: str, leaf: bool, hooks: bool) -> None:
    x = torch.arange(9.0).reshape(3, 3).requires_grad_()
    around = torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t)
    with around if hooks else contextlib.nullcontext():
        y = Both.apply(x if leaf else x * 1, which)
    y.sum().backward()
    strided = hooks and which == "view"  # a copy of a view starts at its own beginning
    odd = {name for name, (a, b) in Both.seen.items() if a != b} - ({"storage_offset"} if strided else set())
    assert odd == set()


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ("x.requires_grad = True", "sets `requires_grad`"),
        ("x.mark = 1", "sets `mark`"),
        ("grad = x.mark", "`.mark` is used of it"),
    ],
)
def test_marks_on_the_object_itself_are_left_alone(use: str, said: str) -> None:
    text = f"""import torch


class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor):
        ctx.x = x
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        x = ctx.x
        {use}
        return grad * x.cos()
"""
    outcome = fixed(text)
    assert outcome.text == text
    (refusal,) = outcome.refused
    assert refusal.kind == "object identity"
    assert said in refusal.reason
