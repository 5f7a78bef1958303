# refused: object
from dataclasses import dataclass

import torch


@dataclass
class Layout:
    offsets: torch.Tensor
    parts: list[torch.Tensor]


def spread(x, layout):
    return x * layout.offsets


class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, layout: Layout):
        ctx.layout = layout
        return spread(x, layout)

    @staticmethod
    def backward(ctx, g):
        return spread(g, ctx.layout), None
