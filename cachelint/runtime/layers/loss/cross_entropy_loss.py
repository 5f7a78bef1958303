"""Cross entropy of logits against class numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept
from cachelint.runtime.layers.loss._reduction import Reduction, checked
from cachelint.runtime.layers.numerics import wide


class CrossEntropyLoss(SaverAware, Node):
    """``-sum_c q_c w_c log softmax(logits)_c`` with q the target, smoothed by ``label_smoothing``.

    Logits: ``[..., V]``, floating. Targets: int64 ``[...]``; those equal to ``ignore_index`` count for nothing.
    ``weight``: one factor a class, ``[V]``. ``mean`` divides by the sum of the targets' weights, and is zero where no
    target counts. The softmax is saved, in the dtype of the logits. Same formula as ``torch.nn.CrossEntropyLoss``.

    Raises:
        ValueError: the shapes do not fit.
    """

    def __init__(
        self,
        reduction: Reduction = "mean",
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
    ) -> None:
        self.reduction = checked(reduction)
        self.weight = weight
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.softmax_output: Tensor | None = None

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss: 0-d, or of the targets' shape for ``none``."""
        if logits.shape[:-1] != targets.shape:
            raise ValueError(f"targets {tuple(targets.shape)} do not fit logits {tuple(logits.shape)}")
        log_softmax = torch.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
        self.softmax_output = log_softmax.exp().to(logits.dtype) if self.training else None
        self.save_for_backward(self.softmax_output)

        index, own, share = self._factors(targets, log_softmax)
        values = -own * log_softmax.gather(-1, index).squeeze(-1)
        if self.label_smoothing:
            values = values - share * (log_softmax * self._class_weight(log_softmax)).sum(-1)
        return (values if self.reduction == "none" else values.sum()).to(logits.dtype)

    def backward(self, grad: Tensor, logits: Tensor, targets: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the logits. Targets are class numbers and have none."""
        softmax = wide(kept(self.softmax_output, self))
        index, own, share = self._factors(targets, softmax)
        weight = self._class_weight(softmax)
        upstream = grad.to(softmax.dtype)
        dlogits = softmax * (upstream * (own + share * weight.sum())).unsqueeze(-1)
        dlogits = dlogits.scatter_add(-1, index, -(upstream * own).unsqueeze(-1))
        if self.label_smoothing:
            dlogits = dlogits - (upstream * share).unsqueeze(-1) * weight
        return dlogits.to(logits.dtype), None

    def _class_weight(self, like: Tensor) -> Tensor:
        return like.new_ones(like.shape[-1]) if self.weight is None else self.weight.to(like)

    def _factors(self, targets: Tensor, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the index of each target, the factor of its own term, and that of the term of every class."""
        valid = targets != self.ignore_index
        index = torch.where(valid, targets, 0)
        weight = self._class_weight(like)[index] * valid
        own = weight * (1.0 - self.label_smoothing)
        share = valid.to(like.dtype) * (self.label_smoothing / like.shape[-1])
        if self.reduction == "mean":
            total = torch.where(weight.sum() > 0, weight.sum(), 1.0)
            own, share = own / total, share / total
        return index.unsqueeze(-1), own, share


def reference(node: CrossEntropyLoss, logits: Tensor, targets: Tensor) -> Tensor:
    """Return the same loss in plain torch operators."""
    values = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]),
        targets.reshape(-1),
        weight=None if node.weight is None else node.weight.to(logits),
        ignore_index=node.ignore_index,
        reduction=node.reduction,
        label_smoothing=node.label_smoothing,
    )
    return values.reshape(targets.shape) if node.reduction == "none" else values


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[CrossEntropyLoss, tuple[Tensor, Tensor]]:
    """Return a node and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    logits = init.normal(2, 3, 5)
    targets = torch.randint(5, (2, 3), generator=init.generator).to(device)
    return CrossEntropyLoss(), (logits, targets)


def example_none(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[CrossEntropyLoss, tuple[Tensor, ...]]:
    """Return a node that does not reduce, and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    targets = torch.randint(5, (4,), generator=init.generator)
    targets[1] = -100
    return CrossEntropyLoss("none"), (init.normal(4, 5, std=2.0), targets.to(device))


def example_weighted(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[CrossEntropyLoss, tuple[Tensor, ...]]:
    """Return a node that weighs the classes and sums, and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    targets = torch.randint(5, (2, 3), generator=init.generator)
    return CrossEntropyLoss("sum", weight=init.uniform(5, low=0.2, high=2.0)), (
        init.normal(2, 3, 5, std=2.0),
        targets.to(device),
    )


def example_smoothed(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[CrossEntropyLoss, tuple[Tensor, ...]]:
    """Return a node that weighs, smooths and ignores, and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    targets = torch.randint(5, (4,), generator=init.generator)
    targets[2] = -1
    return CrossEntropyLoss(weight=init.uniform(5, low=0.2, high=2.0), ignore_index=-1, label_smoothing=0.2), (
        init.normal(4, 5, std=2.0),
        targets.to(device),
    )
