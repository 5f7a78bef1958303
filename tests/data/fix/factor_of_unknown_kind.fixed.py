from torch import Tensor
from torch.autograd import Function

from kernels import norm


class Scale(Function):
    @staticmethod
    def forward(ctx, x: Tensor, factor, flag: bool):
        factor = norm(x, factor)
        ctx.factor, ctx.flag = None if isinstance(factor, Tensor) else factor, flag
        ctx.save_for_backward(factor if isinstance(factor, Tensor) else None)
        return x * factor

    @staticmethod
    def backward(ctx, g):
        (factor,) = ctx.saved_tensors
        factor = ctx.factor if factor is None else factor
        return norm(g, factor) if ctx.flag else g * factor, None, None


class Shared(Function):
    """One of two forwards has no factor."""

    @staticmethod
    def forward(ctx, x: Tensor, factor):
        factor = norm(x, factor)
        if factor is None:
            ctx.plain = True
            ctx.factor = None if isinstance(factor, Tensor) else factor
            ctx.save_for_backward(factor if isinstance(factor, Tensor) else None)
            return x * 1
        ctx.plain = False
        ctx.factor = None if isinstance(factor, Tensor) else factor
        ctx.save_for_backward(factor if isinstance(factor, Tensor) else None)
        return x * factor

    @staticmethod
    def backward(ctx, g):
        (factor,) = ctx.saved_tensors
        factor = ctx.factor if factor is None else factor
        return g if ctx.plain else norm(g, factor), None
