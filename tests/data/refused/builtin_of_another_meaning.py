# refused: name taken
import torch

from kernels import norm
from regions import zip


class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        scale = norm(x)
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx, g):
        return zip(g, ctx.scale)
