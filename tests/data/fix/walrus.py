from torch.autograd import Function


class Walrus(Function):
    @staticmethod
    def forward(ctx, x, w):
        if (y := x @ w).numel() > 3:
            ctx.y = y
        else:
            ctx.y = y * 2
        return y

    @staticmethod
    def backward(ctx, g):
        return g @ ctx.y, None
