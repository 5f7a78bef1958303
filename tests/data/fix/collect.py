from torch.autograd import Function


class Collect(Function):
    @staticmethod
    def forward(ctx, x, w):
        if x.requires_grad:
            ctx.save_for_backward(x, w)
        y = x @ w
        ctx.y = y
        return y * 2

    @staticmethod
    def backward(ctx, g):
        y = ctx.y
        x, w = ctx.saved_tensors
        return g @ w.t() * y.sum(), x.t() @ g
