from torch import Tensor
from torch.autograd import Function

from kernels import norm


class Scale(Function):
    @staticmethod
    def forward(ctx, x: Tensor, factor, flag: bool):
        factor = norm(x, factor)
        ctx.factor, ctx.flag = factor, flag
        return x * factor

    @staticmethod
    def backward(ctx, g):
        factor = ctx.factor
        ctx.factor = None
        return norm(g, factor) if ctx.flag else g * factor, None, None


class Shared(Function):
    """One of two forwards has no factor."""

    @staticmethod
    def forward(ctx, x: Tensor, factor):
        factor = norm(x, factor)
        if factor is None:
            ctx.plain = True
            return x * 1
        ctx.plain = False
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, g):
        return g if ctx.plain else norm(g, ctx.factor), None
