import torch
from torch.autograd import Function


class Both(Function):
    @staticmethod
    def forward(ctx, x, w):
        saved_y = y = x @ w
        saved_x = x.detach()
        ctx.save_for_backward(w, saved_y, saved_x)
        return y

    @staticmethod
    def backward(ctx, g):
        saved_w, saved_y, saved_x = ctx.saved_tensors
        with torch.enable_grad():
            x, w = saved_x, saved_w
        return g @ w.t() + 0 * saved_y, x.t() @ g
