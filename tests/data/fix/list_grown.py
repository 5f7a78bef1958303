import torch
from torch.autograd import Function


class ListGrown(Function):
    @staticmethod
    def forward(ctx, x, w, steps: int):
        ctx.hs = [x]
        for _ in range(steps):
            x = torch.tanh(x @ w)
            ctx.hs.append(x)
        ctx.save_for_backward(w)
        return x

    @staticmethod
    def backward(ctx, g):
        (w,) = ctx.saved_tensors
        gw = torch.zeros_like(w)
        for before, after in zip(ctx.hs[-2::-1], ctx.hs[:0:-1]):
            d = g * (1 - after * after)
            gw += before.t() @ d
            g = d @ w.t()
        return g, gw, None
