import torch
from torch.autograd import Function


class Conditional(Function):
    @staticmethod
    def forward(ctx, x, w, keep: bool):
        saved_hs = ()
        to_save = ()
        hs = []
        for _ in range(3):
            x = torch.tanh(x @ w)
            hs.append(x)
        if keep:
            saved_hs = hs
            to_save = (w,)
        ctx.hs_count = len(saved_hs)
        ctx.save_for_backward(*saved_hs, *to_save)
        return x

    @staticmethod
    def backward(ctx, g):
        saved = ctx.saved_tensors
        hs, saved = list(saved[: ctx.hs_count]), saved[ctx.hs_count :]
        w = saved[0]
        for h in reversed(hs):
            g = (g * (1 - h * h)) @ w.t()
        return g, None, None
