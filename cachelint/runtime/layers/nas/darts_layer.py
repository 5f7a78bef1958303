"""A mixture of candidate operations, for differentiable architecture search."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cachelint.runtime import Node, Parameter, SaverAware
from cachelint.runtime.layers.activations import gelu
from cachelint.runtime.layers.activations.gelu import Gelu
from cachelint.runtime.layers.core import dense
from cachelint.runtime.layers.core.dense import Dense
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept
from cachelint.runtime.layers.numerics import wide


class DARTSLayer(SaverAware, Node):
    """``y = sum_k softmax(alpha / temperature)_k * op_k(x)``; the candidates map x to one common shape.

    Saved are the candidates' results and the weights: alpha may be stepped before backward. Each candidate
    gets its own share of the gradient, so its parameters do too. Source: Liu et al., "DARTS", arXiv:1806.09055.

    Raises:
        ValueError: there is no candidate.
    """

    def __init__(self, candidates: Sequence[Node], *, temperature: float = 1.0, init: Init | None = None) -> None:
        if not candidates:
            raise ValueError("a DARTSLayer needs at least one candidate")
        self.candidates = list(candidates)
        self.alpha = Parameter((init or Init()).normal(len(candidates), std=1e-3), "alpha")
        self.temperature = temperature
        self.op_outputs: tuple[Tensor, ...] = ()
        self.weights: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted sum of the candidates' results."""
        weights = torch.softmax(self.alpha.value / self.temperature, 0)
        outputs = tuple(candidate.forward(x) for candidate in self.candidates)
        self.weights = weights if self.training else None
        self.op_outputs = outputs if self.training else ()
        self.save_for_backward(self.weights, *self.op_outputs)
        return _weighted(weights, outputs)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x; add those of alpha and of the candidates."""
        weights = kept(self.weights, self)
        scores = torch.stack([(wide(grad) * output).sum() for output in self.op_outputs])
        self.alpha.accumulate(weights * (scores - (weights * scores).sum()) / self.temperature)
        dx = torch.zeros_like(x)
        for weight, candidate in zip(weights, self.candidates, strict=True):
            dx = dx + candidate.backward(weight * grad, x)[0]
        return (dx,)


def _weighted(weights: Tensor, outputs: Sequence[Tensor]) -> Tensor:
    total = weights[0] * outputs[0]
    for weight, output in zip(weights[1:], outputs[1:], strict=True):
        total = total + weight * output
    return total


def reference(node: DARTSLayer, x: Tensor) -> Tensor:
    """Return the same mixture in plain torch operators, for ``Dense`` and ``Gelu`` candidates."""
    total = torch.zeros_like(x)
    share = torch.exp(node.alpha.value / node.temperature)
    for part, candidate in zip(share / share.sum(), node.candidates, strict=True):
        if isinstance(candidate, Gelu):
            total = total + part * gelu.reference(candidate, x)
        elif isinstance(candidate, Dense):
            total = total + part * dense.reference(candidate, x)
    return total


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[DARTSLayer, tuple[Tensor]]:
    """Return a node of three candidates, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = DARTSLayer([Dense(3, 3, init=init), Gelu(), Dense(3, 3, activation=Gelu(), init=init)], init=init)
    init.jitter(node)
    return node, (init.normal(2, 5, 3),)


def example_temperature(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[DARTSLayer, tuple[Tensor, ...]]:
    """Return a node that weighs more sharply, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = DARTSLayer([Gelu(), *(Dense(5, 5, init=init) for _ in range(3))], temperature=0.5, init=init)
    init.jitter(node, 0.5)
    return node, (init.normal(7, 5),)
