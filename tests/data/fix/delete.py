from torch.autograd import Function


class Delete(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.x, ctx.w, ctx.n = x, w, 3
        return x * w

    @staticmethod
    def backward(ctx, g):
        n, x, w = ctx.n, ctx.x, ctx.w
        del ctx.x, ctx.w
        return g * w * n, g * x
