from torch.autograd import Function


class TupleWhole(Function):
    @staticmethod
    def forward(ctx, x, w, n: int):
        saved_1 = w @ x
        ctx.n = n
        ctx.save_for_backward(x, saved_1)
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, saved_1 = ctx.saved_tensors
        args = (x, saved_1, ctx.n)
        return helper(g, *args), None, None


def helper(g, x, w, n):
    return g * x + w * n
