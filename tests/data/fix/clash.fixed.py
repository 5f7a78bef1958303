import torch
from torch.autograd import Function


class Clash(Function):
    @staticmethod
    def forward(ctx, x, y):
        z = x @ y
        ctx.save_for_backward(z, x, y)
        return z

    @staticmethod
    def backward(ctx, g):
        z, saved_x, y = ctx.saved_tensors
        x = g.sum()
        return torch.matmul(g, y.t()) + z * 0 * x, saved_x.t() @ g
