from torch.autograd import Function

from elsewhere import gather


class Fn(Function):
    @staticmethod
    def forward(ctx, x, mask):
        ctx.mask = mask
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return gather(g, ctx.mask), None
