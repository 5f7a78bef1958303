# refused: changed in backward
import torch


class Taken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.slope = w.cos() * 2
        return x * w

    @staticmethod
    def backward(ctx, grad):
        slope, ctx.slope = ctx.slope, None
        if slope is None:
            raise RuntimeError("backward ran already")
        return None, slope.mul_(grad)
