from torch.autograd import Function


class Collect(Function):
    @staticmethod
    def forward(ctx, x, w):
        to_save = ()
        if x.requires_grad:
            to_save = (x, w)
        y = x @ w
        ctx.save_for_backward(*to_save, y)
        return y * 2

    @staticmethod
    def backward(ctx, g):
        x, w, y = ctx.saved_tensors
        return g @ w.t() * y.sum(), x.t() @ g
