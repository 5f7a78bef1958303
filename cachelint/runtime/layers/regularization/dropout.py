"""Dropout."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.layers.init import Init


class Dropout(SaverAware, Node):
    """Zero each element with probability ``rate`` and scale the others by ``1 / (1 - rate)``; eval passes x through.

    The mask is random, so it is saved, one byte an element. What forward did decides what backward does, also if the
    mode was changed between them. ``generator`` must be on the device of the input. Source: Srivastava et al.,
    "Dropout", JMLR 15 (2014).
    """

    def __init__(self, rate: float = 0.5, *, generator: torch.Generator | None = None) -> None:
        self.rate = checked_rate(rate)
        self.generator = generator
        self.mask: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the masked x, of any shape; x itself in eval mode."""
        if not self.training:
            self.mask = None
            return x
        mask = draw_mask(x.shape, self.rate, x.device, self.generator)
        self.mask = mask
        self.save_for_backward(mask)
        return apply_mask(x, mask, self.rate)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the masked gradient; the gradient itself if forward ran in eval mode."""
        return (grad if self.mask is None else apply_mask(grad, self.mask, self.rate),)


def checked_rate(rate: float) -> float:
    """``rate`` if it is a probability below one.

    Raises:
        ValueError: it is not.
    """
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"rate must be in [0, 1), not {rate}")
    return rate


def draw_mask(
    shape: torch.Size | tuple[int, ...], rate: float, device: torch.device, generator: torch.Generator | None
) -> Tensor:
    """True with probability ``1 - rate``."""
    return torch.rand(shape, device=device, generator=generator) >= rate


def apply_mask(x: Tensor, mask: Tensor, rate: float) -> Tensor:
    """``x / (1 - rate)`` where the mask is true, else zero; the mask broadcasts against x."""
    return x * mask * (1 / (1 - rate))


def reference(node: Dropout, x: Tensor) -> Tensor:
    """Return the same function in plain torch operators, with the mask that the next forward of ``node`` would draw."""
    if not node.training:
        return x
    drawn = torch.rand(x.shape, device=x.device, generator=node.generator)
    return torch.where(drawn >= node.rate, x / (1 - node.rate), 0.0)


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Dropout, tuple[Tensor]]:
    """Return a node that draws from torch's global stream, and an input for it."""
    return Dropout(0.4), (Init.seeded(seed, device, dtype).normal(3, 4),)


def example_eval(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[Dropout, tuple[Tensor, ...]]:
    """Return a node in eval mode and an input for it."""
    node = Dropout(0.4)
    node.eval()
    return node, (Init.seeded(seed, device, dtype).normal(3, 4),)
