# refused: read after clean-up
from torch.autograd import Function


class Fn(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.y = x @ w
        return ctx.y * 2

    @staticmethod
    def backward(ctx, g):
        total = g * ctx.y
        ctx.y = None
        if ctx.y is None:
            total = total * 2
        return total, None
