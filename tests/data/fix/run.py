import torch
from torch.autograd import Function


class Run(Function):
    @staticmethod
    def forward(ctx, n: int, *xs: torch.Tensor):
        ctx.xs = xs
        return sum(xs)

    @staticmethod
    def backward(ctx, g):
        return (None,) + tuple(g * x for x in ctx.xs)
