"""Negative Pearson correlation."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.loss._reduction import same_shape
from cachelint.runtime.layers.numerics import wide


class CorrLoss(Node):
    """``-sum(pc * tc) / (sqrt(sum pc^2 * sum tc^2) + eps)``, averaged over the columns.

    Predictions and targets: one floating dtype, one shape ``[N, ...]``; pc and tc are centred along axis 0 and each
    column is correlated on its own. A constant column gives loss and gradient zero.

    Raises:
        ValueError: the shapes differ.
    """

    def __init__(self, *, eps: float = 1e-8) -> None:
        self.eps = eps

    def forward(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return the loss, 0-d."""
        same_shape(predictions, targets)
        p, t = _centred(predictions), _centred(targets)
        norm = (p.square().sum(0) * t.square().sum(0)).sqrt()
        return -((p * t).sum(0) / (norm + self.eps)).mean().to(predictions.dtype)

    def backward(self, grad: Tensor, predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of predictions and targets.

        The projection that centring needs is left out: both terms are already orthogonal to the constant vector.
        """
        p, t = _centred(predictions), _centred(targets)
        square_p, square_t = p.square().sum(0), t.square().sum(0)
        product = square_p * square_t
        norm = torch.where(product > 0, product, 1.0).sqrt() * (product > 0)
        shift = torch.where(norm > 0, (p * t).sum(0) / (norm * (norm + self.eps) ** 2), 0.0)
        upstream = grad / max(norm.numel(), 1)
        dp = upstream * (p * (square_t * shift) - t / (norm + self.eps))
        dt = upstream * (t * (square_p * shift) - p / (norm + self.eps))
        return dp.to(predictions.dtype), dt.to(targets.dtype)


def _centred(x: Tensor) -> Tensor:
    return wide(x) - wide(x).mean(0, keepdim=True)


def reference(node: CorrLoss, predictions: Tensor, targets: Tensor) -> Tensor:
    """Return the same loss in plain torch operators."""
    p = predictions - predictions.mean(0)
    t = targets - targets.mean(0)
    norms = torch.linalg.vector_norm(p, dim=0) * torch.linalg.vector_norm(t, dim=0)
    correlation: Tensor = torch.einsum("n...,n...->...", p, t) / (norms + node.eps)
    return -correlation.mean()


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[CorrLoss, tuple[Tensor, Tensor]]:
    """Return a node and inputs for it, correlated: a mean of correlations that cancel has no relative accuracy."""
    init = Init.seeded(seed, device, dtype)
    predictions, noise = init.normal(2, 5, 3)
    return CorrLoss(), (predictions, predictions + noise)


def example_vector(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[CorrLoss, tuple[Tensor, ...]]:
    """Return a node and one column of inputs."""
    init = Init.seeded(seed, device, dtype)
    predictions = init.normal(9)
    return CorrLoss(), (predictions, init.normal(9) - predictions)
