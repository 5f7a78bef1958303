import torch
from torch.autograd import Function


class RunBesideRun(Function):
    @staticmethod
    def forward(ctx, x, *ws: torch.Tensor):
        ctx.halves = [w / 2 for w in ws]
        ctx.save_for_backward(x, *ws)
        return x * sum(ws)

    @staticmethod
    def backward(ctx, g):
        x, *ws = ctx.saved_tensors
        return (g * sum(ctx.halves) * 2, *(g * x for _ in ws))
