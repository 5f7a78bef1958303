"""One step of a recurrent layer."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from cachelint.runtime import Node, Parameter, Persistent, SaverAware
from cachelint.runtime.layers.core.linear import Linear
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept
from cachelint.runtime.layers.numerics import sum_leading

Nonlinearity = Literal["tanh", "relu"]


class SimpleRNN(SaverAware, Node):
    """``h_t = f(x @ w_x + h_(t-1) @ w_h + b)``: x ``[B, In]``, h ``[B, Hidden]``.

    The state is the layer's own: zeros at first, and kept over the steps until ``reset_state``. It may instead be
    given as a second input, which then gets its gradient; the layer's own state gets none (truncation after one step).
    Saved are h_t and, where it is not a live input, h_(t-1): the layer's own state has moved on by the time of
    backward.

    Raises:
        ValueError: the state has another batch size than x.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        nonlinearity: Nonlinearity = "tanh",
        init: Init | None = None,
    ) -> None:
        init = init or Init()
        self.input = Linear(in_features, hidden_features, init=init)
        self.recurrent = Linear(hidden_features, hidden_features, init=init)
        self.bias = Parameter(init.full((hidden_features,), 0.0), "bias")
        self.nonlinearity = nonlinearity
        self.state = Persistent(name="state")
        self.before: Tensor | None = None
        self.after: Tensor | None = None

    def reset_state(self, state: Tensor | None = None) -> None:
        """Start the next step from ``state``, ``[B, Hidden]``, or from zeros."""
        if state is None:
            self.state.invalidate()
        else:
            self.state.set(state.detach())

    def forward(self, x: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Return the new state."""
        before = self._own_state(x) if hidden is None else hidden
        if before.shape[:-1] != x.shape[:-1]:
            raise ValueError(f"x {tuple(x.shape)} does not fit the state {tuple(before.shape)}: call reset_state first")
        z = self.input.forward(x) + self.recurrent.forward(before) + self.bias.value
        after = torch.tanh(z) if self.nonlinearity == "tanh" else torch.relu(z)
        self.state.set(after.detach())
        self.before = before if self.training and hidden is None else None
        self.after = after if self.training else None
        self.save_for_backward(self.before, self.after)
        return after

    def backward(self, grad: Tensor, x: Tensor, hidden: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return the gradient of x, and of the state if it was an input; add those of the parameters."""
        after = kept(self.after, self)
        before = kept(self.before, self) if hidden is None else hidden
        dz = grad * (1.0 - after.square()) if self.nonlinearity == "tanh" else grad * (after > 0)
        (dx,) = self.input.backward(dz, x)
        (dhidden,) = self.recurrent.backward(dz, before)
        self.bias.accumulate(sum_leading(dz))
        return (dx,) if hidden is None else (dx, dhidden)

    def _own_state(self, x: Tensor) -> Tensor:
        state = self.state.get()
        return x.new_zeros((*x.shape[:-1], self.recurrent.weight.value.shape[0])) if state is None else state


def reference(node: SimpleRNN, x: Tensor, hidden: Tensor | None = None) -> Tensor:
    """Return the same step in plain torch operators; a state that is no input is read from the node."""
    before = hidden if hidden is not None else node.state.get()
    z = x @ node.input.weight.value + node.bias.value
    if before is not None:
        z = z + before @ node.recurrent.weight.value
    return torch.tanh(z) if node.nonlinearity == "tanh" else torch.relu(z)


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[SimpleRNN, tuple[Tensor]]:
    """Return a node with a state that isn't zero, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = SimpleRNN(3, 2, init=init)
    init.jitter(node)
    node.reset_state(init.normal(2, 2))
    return node, (init.normal(2, 3),)


def example_relu(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[SimpleRNN, tuple[Tensor, ...]]:
    """Return a node without a state, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = SimpleRNN(5, 4, nonlinearity="relu", init=init)
    init.jitter(node)
    return node, (init.normal(3, 5),)


def example_given_state(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[SimpleRNN, tuple[Tensor, ...]]:
    """Return a node, an input and a state as its second input."""
    init = Init.seeded(seed, device, dtype)
    node = SimpleRNN(3, 4, init=init)
    init.jitter(node)
    return node, (init.normal(2, 3), init.normal(2, 4))
