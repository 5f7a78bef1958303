# refused: read from outside
from torch.autograd import Function


class Fn(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.scores = x.softmax(-1)
        return ctx.scores * 2

    @staticmethod
    def backward(ctx, g):
        return g * ctx.scores


def peek(y):
    return y.grad_fn.scores
