from torch.autograd import Function


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        t = 2 * x
        ctx.t = t
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.t
