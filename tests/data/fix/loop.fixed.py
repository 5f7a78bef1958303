import torch
from torch.autograd import Function


class Loop(Function):
    @staticmethod
    def forward(ctx, x, n: int):
        h = None
        for i in range(n):
            h = torch.tanh(x)
            x = h
        ctx.save_for_backward(h)
        return x

    @staticmethod
    def backward(ctx, g):
        (h,) = ctx.saved_tensors
        return g * (1 - h ** 2), None
