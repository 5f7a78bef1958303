# refused: written in a helper
from torch.autograd import Function


def keep(ctx, y):
    ctx.y = y
    return y


class Fn(Function):
    @staticmethod
    def forward(ctx, x, w):
        if x.dim() > 2:
            return keep(ctx, x @ w)
        return keep(ctx, w @ x)

    @staticmethod
    def backward(ctx, g):
        return g @ ctx.y, None
