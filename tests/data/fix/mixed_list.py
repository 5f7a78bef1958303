import torch
from torch.autograd import Function


class Fn(Function):
    @staticmethod
    def forward(ctx, *args):
        ctx.args = [torch.sort(a).values if torch.is_tensor(a) else a for a in args]
        return args[0] * 2

    @staticmethod
    def backward(ctx, g):
        return tuple(g * a if torch.is_tensor(a) else None for a in ctx.args)
