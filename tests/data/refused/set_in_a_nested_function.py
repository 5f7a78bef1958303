# refused: nested write
from torch.autograd import Function


class Fn(Function):
    @staticmethod
    def forward(ctx, x, w):
        def keep(value):
            ctx.y = value
            return value

        return keep(x @ w) * 2

    @staticmethod
    def backward(ctx, g):
        return g @ ctx.y, None
