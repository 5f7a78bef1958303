"""A loss that pushes the heads of a router apart."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.numerics import wide


class RoutingContrastive(Node):
    """``scale`` times the mean cosine similarity of each pair of different heads.

    Scores: ``[B, H, S]``, floating. A head's norm is taken as at least ``eps``. One head alone has no pair and
    loss zero.

    Raises:
        ValueError: the scores are not of rank three.
    """

    def __init__(self, scale: float = 1.0, *, eps: float = 1e-8) -> None:
        self.scale = scale
        self.eps = eps

    def forward(self, scores: Tensor) -> Tensor:
        """Return the loss, 0-d."""
        if scores.dim() != 3:
            raise ValueError(f"scores must be [batch, heads, length], not {tuple(scores.shape)}")
        unit, _ = self._normalise(scores)
        similarity = unit @ unit.transpose(1, 2)
        off_diagonal = similarity.sum() - similarity.diagonal(dim1=1, dim2=2).sum()
        return (off_diagonal * self._weight(scores)).to(scores.dtype)

    def backward(self, grad: Tensor, scores: Tensor) -> tuple[Tensor]:
        """Return the gradient of the scores."""
        unit, norm = self._normalise(scores)
        dunit = 2.0 * self._weight(scores) * grad * (unit.sum(1, keepdim=True) - unit)
        radial = (dunit * unit).sum(-1, keepdim=True) * (norm > self.eps)
        return (((dunit - unit * radial) / norm.clamp_min(self.eps)).to(scores.dtype),)

    def _normalise(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        norm = torch.linalg.vector_norm(wide(scores), dim=-1, keepdim=True)
        return wide(scores) / norm.clamp_min(self.eps), norm

    def _weight(self, scores: Tensor) -> float:
        batch, heads, _ = scores.shape
        return self.scale / max(batch * heads * (heads - 1), 1)


def reference(node: RoutingContrastive, scores: Tensor) -> Tensor:
    """Return the same loss in plain torch operators."""
    batch, heads, _ = scores.shape
    total = scores.new_zeros(())
    for left in range(heads):
        for right in range(heads):
            if left != right:
                a, b = scores[:, left], scores[:, right]
                total = total + torch.nn.functional.cosine_similarity(a, b, dim=-1, eps=node.eps).sum()
    return node.scale * total / max(batch * heads * (heads - 1), 1)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[RoutingContrastive, tuple[Tensor]]:
    """Return a node and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    scores = init.normal(2, 3, 5)
    return RoutingContrastive(0.5), (scores,)
