import torch
from torch.autograd import Function

from kernels import norm


class Late(Function):
    @staticmethod
    def forward(ctx, x, flag: bool):
        ctx.flag = flag
        if flag:
            return x * 2
        y = x.exp() @ x
        scale = norm(x)
        ctx.y = y
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx, g):
        return (g * 2 if ctx.flag else norm(g * ctx.y, ctx.scale)), None
