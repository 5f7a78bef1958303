import torch


class WithDefault(torch.autograd.Function):
    """Forward always sets it, so that the default is never taken."""

    @staticmethod
    def forward(ctx, x, offsets: torch.Tensor | None = None):
        ctx.offsets = offsets
        if offsets is not None:
            ctx.save_for_backward(x)
            return x * x * offsets
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        if getattr(ctx, "offsets", None) is not None:
            g = g * ctx.offsets
        return 2 * g * x, None
