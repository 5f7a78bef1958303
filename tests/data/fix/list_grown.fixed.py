import torch
from torch.autograd import Function


class ListGrown(Function):
    @staticmethod
    def forward(ctx, x, w, steps: int):
        hs = [x]
        for _ in range(steps):
            x = torch.tanh(x @ w)
            hs.append(x)
        ctx.save_for_backward(w, *hs)
        return x

    @staticmethod
    def backward(ctx, g):
        w, *hs = ctx.saved_tensors
        gw = torch.zeros_like(w)
        for before, after in zip(hs[-2::-1], hs[:0:-1]):
            d = g * (1 - after * after)
            gw += before.t() @ d
            g = d @ w.t()
        return g, gw, None
