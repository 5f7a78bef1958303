"""A layer with a hand-written forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import Tensor

from cachelint.runtime.parameter import Parameter
from cachelint.runtime.persistent import Persistent
from cachelint.runtime.placement_state import outside_arena
from cachelint.runtime.walk import Walkable, replace_tensors, walk


class Node(Walkable):
    """One layer. ``forward(*inputs)`` computes, ``backward(grad, *inputs)`` differentiates.

    ``forward`` takes tensors and gives one tensor, or a tuple of tensors. ``backward`` takes the gradient of forward's
    result (same shape and dtype; a tuple of ``Tensor | None`` if forward gave a tuple) and the same live inputs as
    forward, and gives a tuple with one gradient per input, None where there is none. Parameter gradients are added with
    ``Parameter.accumulate``.
    """

    training: bool = True

    # *args: Any lets a layer write the arguments that it really takes.
    def forward(self, *inputs: Any, **options: Any) -> Any:
        """The result of the layer for ``inputs``."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def backward(self, *args: Any, **options: Any) -> Any:
        """``backward(grad, *inputs)``: one gradient per input, None where there is none."""
        raise NotImplementedError(f"{type(self).__name__} has no backward")

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """The same as ``forward``."""
        return self.forward(*inputs, **options)

    def children(self) -> Iterator[Node]:
        """The nodes that this one holds in attributes, lists, tuples and dicts, each once; not their own children."""
        return (child for _, child in self.named_children())

    def named_children(self) -> Iterator[tuple[str, Node]]:
        """``children`` with the path of each, such as ``experts[2]``."""
        for path, value in walk(self, enter=lambda value: not isinstance(value, Node)):
            if isinstance(value, Node):
                yield path, value

    def nodes(self) -> Iterator[Node]:
        """This node and every node below it, each once."""
        yield self
        yield from (value for _, value in walk(self) if isinstance(value, Node))

    def parameters(self) -> Iterator[Parameter]:
        """Every parameter of this node and the nodes below it, each once, also where two nodes share it."""
        return (parameter for _, parameter in self.named_parameters())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """``parameters`` with the path of each, such as ``w1.weight``."""
        for path, value in walk(self, enter=lambda value: not isinstance(value, Parameter)):
            if isinstance(value, Parameter):
                yield path, value

    def zero_grad(self) -> None:
        """Zero every parameter gradient in place."""
        for parameter in self.parameters():
            parameter.zero_grad()

    def train(self, mode: bool = True) -> Self:
        """Set ``training`` here and on every node below."""
        for node in self.nodes():
            node.training = mode
        return self

    def eval(self) -> Self:
        """The same as ``train(False)``."""
        return self.train(False)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Move every tensor that the node reaches to ``device``, and cast the floating-point ones to ``dtype``.

        What a ``Persistent`` keeps moves along; one that watches a weight is empty afterwards.
        """

        def move(tensor: Tensor) -> Tensor:
            cast = dtype if tensor.is_floating_point() else None
            with torch.no_grad(), outside_arena():
                moved = tensor.to(device=device, dtype=cast or tensor.dtype)
            return moved.requires_grad_() if tensor.requires_grad and tensor.is_leaf else moved

        replace_tensors(self, move)
        for _, kept in walk(self):
            if isinstance(kept, Persistent) and (value := kept.get()) is not None:
                kept.set(move(value))
        return self
