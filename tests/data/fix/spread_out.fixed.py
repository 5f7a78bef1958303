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
        ctx.save_for_backward(x, w)
        return t * t * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        t = torch.where(
            x > 0,
            x * 2,  # twice
            x,
        )
        slope = torch.where(x > 0, 2.0, 1.0)
        return 2 * g * t * slope * w, g * t * t
