import torch


class Released(torch.autograd.Function):
    """What ctx kept anyway is a local that outlives its use once backward derives it again."""

    @staticmethod
    def forward(ctx, x, w):
        doubled = 2.0 * x
        y = doubled * doubled
        del doubled
        ctx.save_for_backward(x, w)
        return y @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        doubled = 2.0 * x
        return 4.0 * doubled * (g @ w.t()), (doubled * doubled).t() @ g
