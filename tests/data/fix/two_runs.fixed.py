import torch
from torch.autograd import Function


class TwoRuns(Function):
    @staticmethod
    def forward(ctx, x, *ws: torch.Tensor):
        halves = [w / 2 for w in ws]
        saved_sorted = tuple(torch.sort(w).values for w in ws)
        ctx.halves_count = len(halves)
        ctx.sorted_count = len(saved_sorted)
        ctx.save_for_backward(x, *halves, *saved_sorted)
        return x * sum(ws)

    @staticmethod
    def backward(ctx, g):
        saved = ctx.saved_tensors
        x, saved = saved[0], saved[1:]
        halves, saved = list(saved[: ctx.halves_count]), saved[ctx.halves_count :]
        saved_sorted = saved[: ctx.sorted_count]
        return (g * sum(halves) * 2, *(g * x + s for s in saved_sorted))
