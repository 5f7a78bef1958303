import torch
from torch.autograd import Function


class Loop(Function):
    @staticmethod
    def forward(ctx, x, n: int):
        for i in range(n):
            ctx.h = torch.tanh(x)
            x = ctx.h
        return x

    @staticmethod
    def backward(ctx, g):
        return g * (1 - ctx.h ** 2), None
