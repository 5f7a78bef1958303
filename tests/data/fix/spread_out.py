import torch
from torch.autograd import Function


class SpreadOut(Function):
    @staticmethod
    def forward(ctx, x, w):
        t = torch.where(
            x > 0,
            x * 2,  # twice
            x,
        )
        ctx.t = t
        ctx.save_for_backward(x, w)
        return t * t * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        slope = torch.where(x > 0, 2.0, 1.0)
        return 2 * g * ctx.t * slope * w, g * ctx.t * ctx.t
