from torch.autograd import Function

from elsewhere import gather


class Fn(Function):
    @staticmethod
    def forward(ctx, *args):
        x, extra = args
        ctx.extra = extra
        return x.exp() * 2

    @staticmethod
    def backward(ctx, g):
        return gather(g, ctx.extra), None
