"""Mean squared error."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.loss._reduction import Reduction, checked, reduce, same_shape, spread
from cachelint.runtime.layers.numerics import wide


class MSE(Node):
    """``(p - t)^2``, folded by ``reduction``. Predictions and targets: one floating dtype, one shape.

    Nothing is kept: both operands are live inputs. The loss has the dtype of the predictions.

    Raises:
        ValueError: the shapes differ.
    """

    def __init__(self, reduction: Reduction = "mean") -> None:
        self.reduction = checked(reduction)

    def forward(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return the loss: 0-d, or of the predictions' shape for ``none``."""
        same_shape(predictions, targets)
        error = wide(predictions) - wide(targets)
        return reduce(error.square(), self.reduction).to(predictions.dtype)

    def backward(self, grad: Tensor, predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of predictions and targets."""
        error = wide(predictions) - wide(targets)
        slope = error * (2.0 * spread(grad, error.numel(), self.reduction))
        return slope.to(predictions.dtype), (-slope).to(targets.dtype)


def reference(node: MSE, predictions: Tensor, targets: Tensor) -> Tensor:
    """Return the same loss in plain torch operators."""
    return torch.nn.functional.mse_loss(predictions, targets, reduction=node.reduction)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MSE, tuple[Tensor, Tensor]]:
    """Return a node and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    predictions, targets = init.normal(2, 3, 5)
    return MSE(), (predictions, targets)


def example_sum(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MSE, tuple[Tensor, ...]]:
    """Return a node that sums, and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    return MSE("sum"), (init.normal(7), init.normal(7))


def example_none(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MSE, tuple[Tensor, ...]]:
    """Return a node that does not reduce, and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    return MSE("none"), (init.normal(2, 1, 3), init.normal(2, 1, 3))
