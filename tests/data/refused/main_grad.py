# refused: object identity
from torch.autograd import Function


class Fn(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.w = w
        ctx.save_for_backward(x)
        return x @ w.t()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        gx = g @ ctx.w
        ctx.w.main_grad.add_(g.t() @ x)
        return gx, None
