from torch.autograd import Function


class TwoInputs(Function):
    @staticmethod
    def forward(ctx, x, w):
        p = x * w
        ctx.p = p
        return p * p

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.p * g, None
