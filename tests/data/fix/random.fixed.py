import torch
from torch.autograd import Function


class Random(Function):
    @staticmethod
    def forward(ctx, x, p: float):
        keep = torch.rand_like(x) > p
        ctx.p = p
        ctx.save_for_backward(keep)
        return x * keep / (1 - p)

    @staticmethod
    def backward(ctx, g):
        (keep,) = ctx.saved_tensors
        return g * keep / (1 - ctx.p), None
