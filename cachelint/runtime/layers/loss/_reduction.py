"""How a loss folds its values, and how the upstream gradient spreads back over them."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

Reduction = Literal["mean", "sum", "none"]


def checked(reduction: Reduction) -> Reduction:
    """Return ``reduction``; raise ValueError when it is not one of ``mean``, ``sum`` and ``none``."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', not {reduction!r}")
    return reduction


def same_shape(predictions: Tensor, targets: Tensor) -> None:
    """Raise ValueError unless both have one shape: a silent broadcast is a wrong loss."""
    if predictions.shape != targets.shape:
        raise ValueError(f"predictions {tuple(predictions.shape)} and targets {tuple(targets.shape)} differ in shape")


def reduce(values: Tensor, reduction: Reduction) -> Tensor:
    """Fold the values of a loss: their mean or sum (a 0-d tensor), or the values themselves."""
    if reduction == "mean":
        return values.mean()
    return values.sum() if reduction == "sum" else values


def spread(grad: Tensor, count: int, reduction: Reduction) -> Tensor:
    """Return the gradient of each of ``count`` values, ready to broadcast against them."""
    return grad / max(count, 1) if reduction == "mean" else grad
