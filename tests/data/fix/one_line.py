from torch.autograd import Function


class OneLine(Function):
    @staticmethod
    def forward(ctx, x): ctx.y = x.exp(); return ctx.y

    @staticmethod
    def backward(ctx, g): return g * ctx.y
