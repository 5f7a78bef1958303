from torch.autograd import Function


class TwoReturns(Function):
    @staticmethod
    def forward(ctx, x, fast: bool):
        m = None
        ctx.fast = fast
        if fast:
            ctx.save_for_backward(m)
            return x * 2
        m = x @ x
        ctx.save_for_backward(m)
        return m

    @staticmethod
    def backward(ctx, g):
        (m,) = ctx.saved_tensors
        if ctx.fast:
            return g * 2, None
        return g @ m, None
