# refused: read in a helper
from torch.autograd import Function


def scaled(ctx, g):
    return g * ctx.y


class Fn(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.y = x @ w
        ctx.save_for_backward(x)
        return ctx.y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return scaled(ctx, g) * x, None


HOOKS = [scaled]
