"""A weight and its gradient, both in memory that outlives every step."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime.placement_state import outside_arena
from cachelint.runtime.span import span_of
from cachelint.runtime.walk import Walkable


class Parameter(Walkable):
    """A trainable tensor ``value`` with its gradient ``grad``, None until the first ``accumulate``.

    The gradient is one buffer of the shape and dtype of ``value`` for the whole life of the parameter: it is added to
    in place, it is never arena memory, and ``zero_grad`` keeps it. A ``value`` in arena memory is copied out of it.
    """

    def __init__(self, value: Tensor, name: str = "") -> None:
        if span_of(value) is not None:
            with outside_arena():
                value = value.clone()
        self.value = value
        self.grad: Tensor | None = None
        self.name = name

    def accumulate(self, grad: Tensor) -> None:
        """Add ``grad`` (the shape of ``value``) to the persistent gradient.

        Raises:
            ValueError: the shapes differ; broadcasting would hide a missing reduction.
        """
        if grad.shape != self.value.shape:
            raise ValueError(
                f"gradient of parameter {self.name or '?'} has shape {tuple(grad.shape)}, "
                f"the parameter has {tuple(self.value.shape)}"
            )
        if self.grad is None:
            with outside_arena():
                self.grad = torch.zeros_like(self.value, requires_grad=False)
        self.grad.add_(grad)

    def zero_grad(self) -> None:
        """Set the gradient to zero in its own buffer, if there is one."""
        if self.grad is not None:
            self.grad = self.grad.detach()
            self.grad.zero_()

    def __repr__(self) -> str:
        """Name, shape and dtype."""
        return f"Parameter({self.name or '?'}, {tuple(self.value.shape)}, {self.value.dtype})"
