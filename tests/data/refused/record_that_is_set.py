# refused: object
from dataclasses import dataclass

import torch


@dataclass
class Layout:
    offsets: torch.Tensor
    count: int = 0


def step(layout):
    layout.count += 1


class Fn(torch.autograd.Function):
    """The callers may look at the count."""

    @staticmethod
    def forward(ctx, x, layout: Layout):
        ctx.layout = layout
        return x * layout.offsets

    @staticmethod
    def backward(ctx, g):
        step(ctx.layout)
        return g * ctx.layout.offsets, None
