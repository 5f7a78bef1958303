import torch
from torch.autograd import Function


class Twice(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.t = torch.sigmoid(x)
        ctx.u = 1 - ctx.t
        ctx.save_for_backward(x)
        return ctx.t * ctx.u

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.t * ctx.u * (1 - 2 * ctx.t) + 0 * x, None
