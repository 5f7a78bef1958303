from torch.autograd import Function


class Cleared(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.x, ctx.w = x, w
        ctx.n = x.numel()
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.x, ctx.w
        ctx.x = ctx.w = None
        return g * w, g * x
