import torch
from torch.autograd import Function


class TupleMix(Function):
    @staticmethod
    def forward(ctx, x, w, n: int):
        y = torch.sort(x * w).values
        ctx.saved = (x, y, n, None)
        return y * n

    @staticmethod
    def backward(ctx, g):
        x, y, n, _ = ctx.saved
        return g * y * n, g * x, None
