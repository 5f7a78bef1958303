# refused: object
from dataclasses import dataclass

import torch


@dataclass
class Layout:
    offsets: torch.Tensor

    def __post_init__(self):
        self.offsets = self.offsets * 2


def spread(x, layout):
    return x * layout.offsets


class Fn(torch.autograd.Function):
    """A copy would be doubled again."""

    @staticmethod
    def forward(ctx, x, layout: Layout):
        ctx.layout = layout
        return spread(x, layout)

    @staticmethod
    def backward(ctx, g):
        return spread(g, ctx.layout), None
