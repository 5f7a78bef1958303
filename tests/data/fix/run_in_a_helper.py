import torch
from torch.autograd import Function


def _back(ctx, g):
    for h in reversed(ctx.hs):
        g = g * (1 - h * h)
    return g


class RunInAHelper(Function):
    @staticmethod
    def forward(ctx, x, w):
        hs = []
        h = x @ w
        for _ in range(3):
            h = torch.tanh(h)
            hs.append(h)
        ctx.hs = hs
        ctx.save_for_backward(x, w)
        return h

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        g = _back(ctx, g)
        return g @ w.t(), x.t() @ g
