import torch


class Taken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, keep: bool):
        ctx.keep = keep
        y = x @ w
        ctx.save_for_backward(w, y)
        return y.exp()

    @staticmethod
    def backward(ctx, grad):
        w, saved_y = ctx.saved_tensors
        if ctx.keep:
            grad = grad * saved_y.exp()
        else:
            y = saved_y
            if y is None:
                raise RuntimeError("backward ran already")
            grad = grad * y.exp()
        return grad @ w.T, None, None
