import torch
from torch.autograd import Function


class Twice(Function):
    @staticmethod
    def forward(ctx, x, w):
        t = torch.sigmoid(x)
        u = 1 - t
        ctx.save_for_backward(x)
        return t * u

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        t = torch.sigmoid(x)
        u = 1 - t
        return g * t * u * (1 - 2 * t) + 0 * x, None
