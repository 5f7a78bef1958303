from torch.autograd import Function


class TupleWhole(Function):
    @staticmethod
    def forward(ctx, x, w, n: int):
        ctx.saved = (x, w @ x, n)
        return x * w

    @staticmethod
    def backward(ctx, g):
        args = ctx.saved
        return helper(g, *args), None, None


def helper(g, x, w, n):
    return g * x + w * n
