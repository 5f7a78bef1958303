from torch.autograd import Function


class Literal(Function):
    @staticmethod
    def forward(ctx, x, w):
        setattr(ctx, "x", x)
        setattr(ctx, "w", w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        return g * getattr(ctx, "w"), g * getattr(ctx, "x")
