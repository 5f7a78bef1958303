import torch
from torch.autograd import Function


class Clash(Function):
    @staticmethod
    def forward(ctx, x, y):
        z = x @ y
        ctx.x = z
        ctx.g = x
        ctx.torch = y
        return z

    @staticmethod
    def backward(ctx, g):
        x = g.sum()
        return torch.matmul(g, ctx.torch.t()) + ctx.x * 0 * x, ctx.g.t() @ g
