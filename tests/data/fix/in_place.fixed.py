from torch.autograd import Function


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        t = 2 * x
        ctx.save_for_backward(t)
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        return g * t
