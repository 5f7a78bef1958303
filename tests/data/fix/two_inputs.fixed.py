from torch.autograd import Function


class TwoInputs(Function):
    @staticmethod
    def forward(ctx, x, w):
        p = x * w
        ctx.save_for_backward(p)
        return p * p

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        return 2 * p * g, None
