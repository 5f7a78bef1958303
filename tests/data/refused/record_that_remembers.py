# refused: object
from dataclasses import dataclass

import torch


@dataclass
class Layout:
    offsets: torch.Tensor

    def doubled(self):
        if not hasattr(self, "memory"):
            self.memory = self.offsets * 2
        return self.memory


def spread(x, layout):
    return x * layout.doubled()


class Fn(torch.autograd.Function):
    """What it remembers is no field, and a copy has it not."""

    @staticmethod
    def forward(ctx, x, layout: Layout):
        ctx.layout = layout
        return spread(x, layout)

    @staticmethod
    def backward(ctx, g):
        return spread(g, ctx.layout), None
