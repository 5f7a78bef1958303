import torch
from torch.autograd import Function


class Setup(Function):
    @staticmethod
    def forward(x, w, n: int):
        return torch.tanh(x * w) * n

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, w, n = inputs
        ctx.x = x
        ctx.w = w
        ctx.out = output
        ctx.n = n

    @staticmethod
    def backward(ctx, g):
        d = g * (ctx.n - ctx.out ** 2 / ctx.n)
        return d * ctx.w, d * ctx.x, None
