import torch
from torch.autograd import Function


class RunBesideRun(Function):
    @staticmethod
    def forward(ctx, x, *ws: torch.Tensor):
        halves = [w / 2 for w in ws]
        ctx.halves_count = len(halves)
        ctx.save_for_backward(*halves, x, *ws)
        return x * sum(ws)

    @staticmethod
    def backward(ctx, g):
        saved = ctx.saved_tensors
        halves, saved = list(saved[: ctx.halves_count]), saved[ctx.halves_count :]
        x, *ws = saved
        return (g * sum(halves) * 2, *(g * x for _ in ws))
