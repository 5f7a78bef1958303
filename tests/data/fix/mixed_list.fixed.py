import torch
from torch.autograd import Function


class Fn(Function):
    @staticmethod
    def forward(ctx, *args):
        saved_args = [torch.sort(a).values if torch.is_tensor(a) else a for a in args]
        ctx.args = [None if isinstance(item, torch.Tensor) else item for item in saved_args]
        ctx.save_for_backward(*(item if isinstance(item, torch.Tensor) else None for item in saved_args))
        return args[0] * 2

    @staticmethod
    def backward(ctx, g):
        args = list(ctx.saved_tensors)
        args = [kept if item is None else item for item, kept in zip(args, ctx.args)]
        return tuple(g * a if torch.is_tensor(a) else None for a in args)
