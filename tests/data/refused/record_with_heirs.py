# refused: object
from dataclasses import dataclass

import torch


@dataclass
class Layout:
    offsets: torch.Tensor


class Counted(Layout):
    __slots__ = ("count",)


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
