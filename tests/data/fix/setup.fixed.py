import torch
from torch.autograd import Function


class Setup(Function):
    @staticmethod
    def forward(x, w, n: int):
        return torch.tanh(x * w) * n

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, w, n = inputs
        ctx.save_for_backward(x, w, output)
        ctx.n = n

    @staticmethod
    def backward(ctx, g):
        x, w, output = ctx.saved_tensors
        d = g * (ctx.n - output ** 2 / ctx.n)
        return d * w, d * x, None
