"""Cross entropy of logits against class numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers import kernels
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.loss._reduction import Reduction, checked


class CrossEntropyLoss(Node):
    """``-sum_c q_c w_c log softmax(logits)_c`` with q the target, smoothed by ``label_smoothing``.

    Logits: ``[..., V]``, floating. Targets: int64 ``[...]``; those equal to ``ignore_index`` count for nothing.
    ``weight``: one factor a class, ``[V]``. ``mean`` divides by the sum of the targets' weights, and is zero where no
    target counts. Same formula as ``torch.nn.CrossEntropyLoss``.

    Nothing is saved: the softmax follows from the statistics of each row, and backward derives it from the live logits.

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

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss: 0-d, or of the targets' shape for ``none``."""
        if logits.shape[:-1] != targets.shape:
            raise ValueError(f"targets {tuple(targets.shape)} do not fit logits {tuple(logits.shape)}")
        weight = self._class_weight(logits) if self.label_smoothing else None
        index, own, share = self._factors(targets, logits)
        picked, weighted = log_probabilities(logits, index, weight)
        del index
        values = torch.where(own != 0, -own * picked, 0.0)  # where nothing counts the logit may be infinite
        del own, picked
        if weighted is not None:
            values = values - share * weighted
        return (values if self.reduction == "none" else values.sum()).to(logits.dtype)

    def backward(self, grad: Tensor, logits: Tensor, targets: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the logits. Targets are class numbers and have none."""
        weight = self._class_weight(logits) if self.label_smoothing else None
        index, own, share = self._factors(targets, logits)
        whole = own if weight is None else own + share * weight.sum()
        upstream = grad.to(own.dtype)
        return logits_backward(logits, index, weight, (upstream * whole, upstream * own, upstream * share)), None

    def _class_weight(self, logits: Tensor) -> Tensor:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        if self.weight is not None:
            return self.weight.to(logits.device, dtype)
        return torch.ones(logits.shape[-1], dtype=dtype, device=logits.device)

    def _factors(self, targets: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the index of each target, the factor of its own term, and that of the term of every class."""
        valid = targets != self.ignore_index
        index = torch.where(valid, targets, 0)
        weight = self._class_weight(logits)[index] * valid
        own = weight * (1.0 - self.label_smoothing)
        share = valid.to(weight.dtype) * (self.label_smoothing / logits.shape[-1])
        if self.reduction == "mean":
            total = torch.where(weight.sum() > 0, weight.sum(), 1.0)
            own, share = own / total, share / total
        return index, own, share


def log_probabilities(logits: Tensor, index: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Of ``p = log softmax(logits)``, ``[..., V]``: its entry at ``index``, and ``sum weight * p`` over the last axis.

    Each ``[...]``, in float32 at least; the second one is None without a weight, ``[V]``.
    """
    if kernels.enabled(logits, weight):
        from cachelint.runtime.layers.kernels import cross_entropy as fused

        return fused.log_probabilities(logits, index, weight)
    p = torch.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
    picked = p.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    return picked, None if weight is None else (p * weight).sum(-1)


def logits_backward(
    logits: Tensor, index: Tensor, weight: Tensor | None, factors: tuple[Tensor, Tensor, Tensor]
) -> Tensor:
    """``whole * softmax - own * onehot(index) - share * weight``, in the dtype of the logits ``[..., V]``.

    ``index`` and the factors whole, own and share are ``[...]``; ``weight`` is ``[V]`` or None.
    """
    if kernels.enabled(logits, weight, *factors):
        from cachelint.runtime.layers.kernels import cross_entropy as fused

        return fused.logits_backward(logits, index, weight, factors)
    whole, own, share = (factor.unsqueeze(-1) for factor in factors)
    softmax = torch.softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
    dlogits = (softmax * whole).scatter_add(-1, index.unsqueeze(-1), -own.expand(*index.shape, 1))
    return (dlogits if weight is None else dlogits - share * weight).to(logits.dtype)


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
