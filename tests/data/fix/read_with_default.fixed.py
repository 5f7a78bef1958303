import torch


class WithDefault(torch.autograd.Function):
    """Forward always sets it, so that the default is never taken."""

    @staticmethod
    def forward(ctx, x, offsets: torch.Tensor | None = None):
        if offsets is not None:
            to_save = (x,)
            ctx.save_for_backward(*to_save, offsets)
            return x * x * offsets
        to_save = (x,)
        ctx.save_for_backward(*to_save, offsets)
        return x * x

    @staticmethod
    def backward(ctx, g):
        x, offsets = ctx.saved_tensors
        if offsets is not None:
            g = g * offsets
        return 2 * g * x, None
