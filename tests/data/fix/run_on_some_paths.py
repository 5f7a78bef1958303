import torch
from torch.autograd import Function


class Conditional(Function):
    @staticmethod
    def forward(ctx, x, w, keep: bool):
        hs = []
        for _ in range(3):
            x = torch.tanh(x @ w)
            hs.append(x)
        if keep:
            ctx.hs = hs
            ctx.save_for_backward(w)
        return x

    @staticmethod
    def backward(ctx, g):
        w = ctx.saved_tensors[0]
        for h in reversed(ctx.hs):
            g = (g * (1 - h * h)) @ w.t()
        return g, None, None
