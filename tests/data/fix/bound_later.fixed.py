import torch
from torch.autograd import Function

from kernels import norm


class Late(Function):
    @staticmethod
    def forward(ctx, x, flag: bool):
        saved_y = None
        saved_scale = None
        ctx.flag = flag
        if flag:
            ctx.scale = None if isinstance(saved_scale, torch.Tensor) else saved_scale
            ctx.save_for_backward(saved_y, saved_scale if isinstance(saved_scale, torch.Tensor) else None)
            return x * 2
        y = x.exp() @ x
        scale = norm(x)
        saved_y = y
        saved_scale = scale
        ctx.scale = None if isinstance(saved_scale, torch.Tensor) else saved_scale
        ctx.save_for_backward(saved_y, saved_scale if isinstance(saved_scale, torch.Tensor) else None)
        return y

    @staticmethod
    def backward(ctx, g):
        saved_y, saved_scale = ctx.saved_tensors
        saved_scale = ctx.scale if saved_scale is None else saved_scale
        return (g * 2 if ctx.flag else norm(g * saved_y, saved_scale)), None
