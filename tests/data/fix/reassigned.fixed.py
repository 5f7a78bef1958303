from torch.autograd import Function


class Reassigned(Function):
    @staticmethod
    def forward(ctx, x):
        h = x.sin()
        h = h.cos()
        ctx.save_for_backward(h)
        return h

    @staticmethod
    def backward(ctx, g):
        (h,) = ctx.saved_tensors
        h = h * 1
        return g * h
