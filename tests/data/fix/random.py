import torch
from torch.autograd import Function


class Random(Function):
    @staticmethod
    def forward(ctx, x, p: float):
        keep = torch.rand_like(x) > p
        ctx.keep, ctx.p = keep, p
        return x * keep / (1 - p)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.keep / (1 - ctx.p), None
