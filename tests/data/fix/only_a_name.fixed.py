from torch.autograd import Function

from elsewhere import gather
import torch


class Fn(Function):
    @staticmethod
    def forward(ctx, x, mask):
        ctx.mask = None if isinstance(mask, torch.Tensor) else mask
        ctx.save_for_backward(mask if isinstance(mask, torch.Tensor) else None)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        mask = ctx.mask if mask is None else mask
        return gather(g, mask), None
