import torch
from torch.autograd import Function


class TwoRuns(Function):
    @staticmethod
    def forward(ctx, x, *ws: torch.Tensor):
        ctx.halves = [w / 2 for w in ws]
        ctx.x = x
        ctx.sorted = tuple(torch.sort(w).values for w in ws)
        return x * sum(ws)

    @staticmethod
    def backward(ctx, g):
        halves = ctx.halves
        return (g * sum(halves) * 2, *(g * ctx.x + s for s in ctx.sorted))
