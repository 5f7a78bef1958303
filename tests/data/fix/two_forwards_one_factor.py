import torch

from kernels import norm


class Base(torch.autograd.Function):
    @staticmethod
    def backward(ctx, g):
        return g * 2 if ctx.plain else norm(g, ctx.factor)


class Plain(Base):
    @staticmethod
    def forward(ctx, x):
        ctx.plain = True
        return x * 2


class Scaled(Base):
    @staticmethod
    def forward(ctx, x):
        factor = norm(x)
        ctx.plain = False
        ctx.factor = factor
        return x * factor
