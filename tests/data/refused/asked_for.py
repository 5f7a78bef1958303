# refused: tested for
from torch.autograd import Function


class Fn(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx, g):
        if hasattr(ctx, "x"):
            return g * ctx.x
        return g
