import torch
from torch.autograd import Function


def _back(ctx, g, hs):
    for h in reversed(hs):
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
        ctx.save_for_backward(x, w, *hs)
        return h

    @staticmethod
    def backward(ctx, g):
        x, w, *hs = ctx.saved_tensors
        g = _back(ctx, g, hs=hs)
        return g @ w.t(), x.t() @ g
