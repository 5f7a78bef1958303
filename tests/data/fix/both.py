import torch
from torch.autograd import Function


class Both(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.w = w
        ctx.y = y = x @ w
        ctx.x = x.detach()
        return y

    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            x, w = ctx.x, ctx.w
        return g @ w.t() + 0 * ctx.y, x.t() @ g
