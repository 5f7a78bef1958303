import torch

from kernels import norm


class Named(torch.autograd.Function):
    """A field that is called like a module that the fix needs."""

    @staticmethod
    def forward(ctx, x, flag: bool):
        y = x.exp() @ x
        scale = norm(y)
        if flag:
            ctx.torch = y
        ctx.scale = scale
        ctx.flag = flag
        return y * scale

    @staticmethod
    def backward(ctx, g):
        return (g * ctx.torch if ctx.flag else g) * ctx.scale, None
