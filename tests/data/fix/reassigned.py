from torch.autograd import Function


class Reassigned(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.h = x.sin()
        ctx.h = ctx.h.cos()
        return ctx.h

    @staticmethod
    def backward(ctx, g):
        ctx.h = ctx.h * 1
        return g * ctx.h
