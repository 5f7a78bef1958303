from torch.autograd import Function


class Delete(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.n = 3
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        n = ctx.n
        return g * w * n, g * x
