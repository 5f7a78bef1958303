from __future__ import annotations

import torch
from torch import Tensor


class Mask:
    """No tensor, and it has none."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def over(self, x: Tensor) -> Tensor:
        return x * self.factor


def masked(x, mask):
    return mask.over(x) if isinstance(mask, Mask) else x * mask


class Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, mask: Tensor | Mask):
        ctx.mask = mask
        return masked(x, mask)

    @staticmethod
    def backward(ctx, g):
        return masked(g, ctx.mask), None
