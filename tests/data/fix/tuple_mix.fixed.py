import torch
from torch.autograd import Function


class TupleMix(Function):
    @staticmethod
    def forward(ctx, x, w, n: int):
        y = torch.sort(x * w).values
        ctx.n = n
        ctx.save_for_backward(x, y)
        return y * n

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        n = ctx.n
        return g * y * n, g * x, None
