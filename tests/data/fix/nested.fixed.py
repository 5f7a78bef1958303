from torch.autograd import Function


class Nested(Function):
    @staticmethod
    def forward(ctx, x, f):
        ctx.f = f
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        def inner(scale):
            return g * x.exp() * scale

        return inner(1.0), None
