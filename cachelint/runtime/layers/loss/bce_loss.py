"""Binary cross entropy on probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.loss._reduction import Reduction, checked, reduce, same_shape, spread
from cachelint.runtime.layers.numerics import wide


class BCELoss(Node):
    """``-(w * t * log p + (1 - t) * log(1 - p))``, folded by ``reduction``; p is clamped to ``[eps, 1 - eps]``.

    Predictions and targets: probabilities of one floating dtype and one shape. ``positive_weight`` is w. Where the
    clamp is active the loss is flat in p, so the gradient is zero there.

    Raises:
        ValueError: the shapes differ.
    """

    def __init__(self, reduction: Reduction = "mean", *, eps: float = 1e-7, positive_weight: float = 1.0) -> None:
        self.reduction = checked(reduction)
        self.eps = eps
        self.positive_weight = positive_weight

    def forward(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return the loss: 0-d, or of the predictions' shape for ``none``."""
        same_shape(predictions, targets)
        p, t = wide(predictions), wide(targets)
        p = p.clamp(self.eps, 1.0 - self.eps)
        values = -(self.positive_weight * t * p.log() + (1.0 - t) * (1.0 - p).log())
        return reduce(values, self.reduction).to(predictions.dtype)

    def backward(self, grad: Tensor, predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of predictions and targets."""
        p, t = wide(predictions), wide(targets)
        upstream = spread(grad, p.numel(), self.reduction)
        inside = (p >= self.eps) & (p <= 1.0 - self.eps)
        p = p.clamp(self.eps, 1.0 - self.eps)
        dp = ((1.0 - t) / (1.0 - p) - self.positive_weight * t / p) * inside * upstream
        dt = ((1.0 - p).log() - self.positive_weight * p.log()) * upstream
        return dp.to(predictions.dtype), dt.to(targets.dtype)


def reference(node: BCELoss, predictions: Tensor, targets: Tensor) -> Tensor:
    """Return the same loss in plain torch operators."""
    p = torch.clamp(predictions, node.eps, 1.0 - node.eps)
    values = -node.positive_weight * targets * torch.log(p) - (1.0 - targets) * torch.log(1.0 - p)
    return reduce(values, node.reduction)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[BCELoss, tuple[Tensor, Tensor]]:
    """Return a node and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    predictions, targets = init.uniform(2, 3, 5, low=0.05, high=0.95)
    return BCELoss(), (predictions, targets)


def example_sum(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[BCELoss, tuple[Tensor, ...]]:
    """Return a node that weighs and sums, and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    node = BCELoss("sum", positive_weight=3.0)
    return node, (init.uniform(7, low=0.05, high=0.95), init.uniform(7, low=0.0, high=1.0))


def example_none(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[BCELoss, tuple[Tensor, ...]]:
    """Return a node that does not reduce, and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    return BCELoss("none"), (init.uniform(2, 3, low=0.05, high=0.95), init.uniform(2, 3, low=0.0, high=1.0))
