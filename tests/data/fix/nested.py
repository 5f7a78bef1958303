from torch.autograd import Function


class Nested(Function):
    @staticmethod
    def forward(ctx, x, f):
        ctx.f = f
        ctx.x = x
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        def inner(scale):
            return g * ctx.x.exp() * scale

        return inner(1.0), None
