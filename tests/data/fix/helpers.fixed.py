import torch
from torch.autograd import Function


class Helpers(Function):
    @staticmethod
    def forward(ctx, x, w, scale: float):
        e = torch.tanh(x)
        m = x @ w
        _keep(ctx, m, scale)
        ctx.save_for_backward(m, x)
        return e + m

    @staticmethod
    def backward(ctx, g):
        return _half(ctx, g), None, None


def _keep(ctx, value, scale):
    ctx.scale = scale


def _half(ctx, g):
    m, x = ctx.saved_tensors
    e = torch.tanh(x)
    return g * e + m * ctx.scale
