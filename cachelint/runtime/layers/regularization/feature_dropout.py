"""Dropout of whole features."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.regularization.dropout import apply_mask, checked_rate, draw_mask


class FeatureDropout(SaverAware, Node):
    """Dropout with one draw for each index of axis 1, the same for every other index; eval passes x through.

    The mask is random, so it is saved, one byte a feature. ``generator`` must be on the device of the input.

    Raises:
        ValueError: the input has fewer than two axes.
    """

    def __init__(self, rate: float = 0.5, *, generator: torch.Generator | None = None) -> None:
        self.rate = checked_rate(rate)
        self.generator = generator
        self.mask: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the masked x, ``[B, F, ...]``; x itself in eval mode."""
        if x.dim() < 2:
            raise ValueError(f"FeatureDropout needs at least two axes, not the shape {tuple(x.shape)}")
        if not self.training:
            self.mask = None
            return x
        mask = draw_mask((x.shape[1], *(1,) * (x.dim() - 2)), self.rate, x.device, self.generator)
        self.mask = mask
        self.save_for_backward(mask)
        return apply_mask(x, mask, self.rate)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the masked gradient; the gradient itself if forward ran in eval mode."""
        return (grad if self.mask is None else apply_mask(grad, self.mask, self.rate),)


def reference(node: FeatureDropout, x: Tensor) -> Tensor:
    """Return the same function in plain torch operators, with the mask that the next forward of ``node`` would draw."""
    if not node.training:
        return x
    drawn = torch.rand(x.shape[1], device=x.device, generator=node.generator)
    drawn = drawn.view(-1, *(1,) * (x.dim() - 2))
    return torch.where(drawn >= node.rate, x / (1 - node.rate), 0.0)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[FeatureDropout, tuple[Tensor]]:
    """Return a node that draws from torch's global stream, and an input for it."""
    return FeatureDropout(0.4), (Init.seeded(seed, device, dtype).normal(2, 5, 3),)


def example_eval(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[FeatureDropout, tuple[Tensor, ...]]:
    """Return a node in eval mode and an input for it."""
    node = FeatureDropout(0.4)
    node.eval()
    return node, (Init.seeded(seed, device, dtype).normal(2, 5),)
