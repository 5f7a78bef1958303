"""Small layers for tests of the graph and the arena, each with a formula that autograd can repeat."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cachelint.runtime import Node, Parameter, SaverAware


class Scale(Node):
    """``y = w * x``: a parameter, and a live input that backward needs."""

    def __init__(self, value: Tensor) -> None:
        self.w = Parameter(value, "w")

    def forward(self, x: Tensor) -> Tensor:
        return x * self.w.value

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        self.w.accumulate((grad * x).sum_to_size(self.w.value.shape))
        return (grad * self.w.value,)


class Exp(SaverAware, Node):
    """``y = exp(x)``, and y is saved."""

    def __init__(self) -> None:
        self.output: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        y = torch.exp(x)
        self.output = y
        self.save_for_backward(y)
        return y

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        assert self.output is not None
        return (grad * self.output,)


class LeakyExp(Node):
    """``y = exp(x)`` with y kept and not registered: the planted fault."""

    def __init__(self) -> None:
        self.output: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.output = torch.exp(x)
        return self.output.clone()

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        assert self.output is not None
        return (grad * self.output,)


class Add(Node):
    """``a + b``; both inputs get the very tensor that came in."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b

    def backward(self, grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return grad, grad


class Mul(Node):
    """``a * b`` from live inputs alone."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a * b

    def backward(self, grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return grad * b, grad * a


class Halves(Node):
    """Splits the last axis in two: a node with two results, both views."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = x.chunk(2, -1)
        return a, b

    def backward(self, grads: tuple[Tensor | None, Tensor | None], x: Tensor) -> tuple[Tensor]:
        half = x.shape[-1] // 2
        parts = [x.new_zeros(*x.shape[:-1], half) if g is None else g for g in grads]
        return (torch.cat(parts, -1),)


class Sines(SaverAware, Node):
    """``sum of sin(k x)`` with the cosines kept in a list and a dict, all saved."""

    def __init__(self) -> None:
        self.parts: dict[str, list[Tensor]] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.parts = {"cos": [torch.cos(k * x) * k for k in (1, 2)]}
        self.save_for_backward(*self.parts["cos"])
        return torch.sin(x) + torch.sin(2 * x)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        first, second = self.parts["cos"]
        return (grad * first + grad * second,)


class Failing(SaverAware, Node):
    """Saves its output, then raises in the phase that it is told to."""

    def __init__(self, phase: str) -> None:
        self.phase = phase
        self.output: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.output = torch.sin(x)
        self.save_for_backward(self.output, x)
        if self.phase == "forward":
            raise ValueError("planted")
        return self.output

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        if self.phase == "backward":
            raise ValueError("planted")
        return (grad * torch.cos(x),)


def by_autograd(function: Any, *inputs: Tensor, grad: Tensor | None = None) -> tuple[Tensor, ...]:
    """Gradients of ``function`` by autograd, zero where there is none."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    y = function(*leaves)
    found = torch.autograd.grad(y, leaves, torch.ones_like(y) if grad is None else grad, allow_unused=True)
    return tuple(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True))
