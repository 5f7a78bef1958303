# refused: object identity
import torch

from samples import keep


class Fn(torch.autograd.Function):
    """Tensors with something hung on them: hooks give back tensors without it."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, w: torch.Tensor):
        count = w.sample_count
        ctx.both = (x, w)
        return x * w * count

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.both
        keep(w, g)
        return g * w, g * x
