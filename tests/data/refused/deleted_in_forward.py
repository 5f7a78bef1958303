# refused: deleted in forward
from torch.autograd import Function


class Fn(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.y = x @ w
        if not ctx.needs_input_grad[0]:
            del ctx.y
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * ctx.y, None
