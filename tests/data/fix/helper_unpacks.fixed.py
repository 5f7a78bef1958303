import torch
from torch.autograd import Function


def _reach(ctx, g):
    x, w, t = ctx.saved_tensors
    return g * w * t, g * x


class HelperUnpacks(Function):
    @staticmethod
    def forward(ctx, x, w):
        t = torch.tanh(x) @ w
        ctx.save_for_backward(x, w, t)
        return x * w

    @staticmethod
    def backward(ctx, g):
        return _reach(ctx, g)
