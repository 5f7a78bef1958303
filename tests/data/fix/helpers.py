import torch
from torch.autograd import Function


class Helpers(Function):
    @staticmethod
    def forward(ctx, x, w, scale: float):
        e = torch.tanh(x)
        m = x @ w
        _keep(ctx, m, scale)
        ctx.e = e
        return e + m

    @staticmethod
    def backward(ctx, g):
        return _half(ctx, g), None, None


def _keep(ctx, value, scale):
    ctx.value = value
    ctx.scale = scale


def _half(ctx, g):
    return g * ctx.e + ctx.value * ctx.scale
