from torch.autograd import Function


class TwoReturns(Function):
    @staticmethod
    def forward(ctx, x, fast: bool):
        ctx.fast = fast
        if fast:
            return x * 2
        ctx.m = x @ x
        return ctx.m

    @staticmethod
    def backward(ctx, g):
        if ctx.fast:
            return g * 2, None
        return g @ ctx.m, None
