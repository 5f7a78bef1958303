import torch
from torch.autograd import Function


class Run(Function):
    @staticmethod
    def forward(ctx, n: int, *xs: torch.Tensor):
        ctx.save_for_backward(*xs)
        return sum(xs)

    @staticmethod
    def backward(ctx, g):
        xs = ctx.saved_tensors
        return (None,) + tuple(g * x for x in xs)
