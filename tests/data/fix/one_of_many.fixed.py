from torch.autograd import Function

from elsewhere import gather
import torch


class Fn(Function):
    @staticmethod
    def forward(ctx, *args):
        x, extra = args
        ctx.extra = None if isinstance(extra, torch.Tensor) else extra
        ctx.save_for_backward(extra if isinstance(extra, torch.Tensor) else None)
        return x.exp() * 2

    @staticmethod
    def backward(ctx, g):
        (extra,) = ctx.saved_tensors
        extra = ctx.extra if extra is None else extra
        return gather(g, extra), None
