import torch

from kernels import norm


class Named(torch.autograd.Function):
    """A field that is called like a module that the fix needs."""

    @staticmethod
    def forward(ctx, x, flag: bool):
        saved_torch = None
        y = x.exp() @ x
        scale = norm(y)
        if flag:
            saved_torch = y
        ctx.scale = None if isinstance(scale, torch.Tensor) else scale
        ctx.save_for_backward(saved_torch, scale if isinstance(scale, torch.Tensor) else None)
        ctx.flag = flag
        return y * scale

    @staticmethod
    def backward(ctx, g):
        saved_torch, scale = ctx.saved_tensors
        scale = ctx.scale if scale is None else scale
        return (g * saved_torch if ctx.flag else g) * scale, None
