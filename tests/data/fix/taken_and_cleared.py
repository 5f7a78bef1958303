import torch


class Taken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, keep: bool):
        ctx.keep = keep
        ctx.y = x @ w
        ctx.save_for_backward(w)
        return ctx.y.exp()

    @staticmethod
    def backward(ctx, grad):
        (w,) = ctx.saved_tensors
        if ctx.keep:
            grad = grad * ctx.y.exp()
        else:
            y, ctx.y = ctx.y, None
            if y is None:
                raise RuntimeError("backward ran already")
            grad = grad * y.exp()
        return grad @ w.T, None, None
