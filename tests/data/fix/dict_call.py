import torch
from torch.autograd import Function


class DictCall(Function):
    @staticmethod
    def forward(ctx, x, w, n: int):
        y = torch.sort(x @ w).values
        ctx.kept = dict(w=w, y=y, n=n, mode="plain")
        return y * n

    @staticmethod
    def backward(ctx, g):
        return rule(g, **ctx.kept), None, None


def rule(g, w, y, n, mode):
    return g * w * y * n
