import torch

from kernels import norm


class Base(torch.autograd.Function):
    @staticmethod
    def backward(ctx, g):
        (factor,) = ctx.saved_tensors
        factor = ctx.factor if factor is None else factor
        return g * 2 if ctx.plain else norm(g, factor)


class Plain(Base):
    @staticmethod
    def forward(ctx, x):
        ctx.plain = True
        ctx.factor = None
        ctx.save_for_backward(None)
        return x * 2


class Scaled(Base):
    @staticmethod
    def forward(ctx, x):
        factor = norm(x)
        ctx.plain = False
        ctx.factor = None if isinstance(factor, torch.Tensor) else factor
        ctx.save_for_backward(factor if isinstance(factor, torch.Tensor) else None)
        return x * factor
