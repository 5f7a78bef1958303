import torch
from torch.autograd import Function


class DictCall(Function):
    @staticmethod
    def forward(ctx, x, w, n: int):
        y = torch.sort(x @ w).values
        ctx.n = n
        ctx.save_for_backward(w, y)
        return y * n

    @staticmethod
    def backward(ctx, g):
        w, y = ctx.saved_tensors
        kept = {"w": w, "y": y, "n": ctx.n, "mode": "plain"}
        return rule(g, **kept), None, None


def rule(g, w, y, n, mode):
    return g * w * y * n
