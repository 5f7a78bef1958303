# refused: workspace
import torch
from torch.autograd import Function


_BUFFERS = {}


def buffer(n):
    if n not in _BUFFERS:
        _BUFFERS[n] = torch.empty(n)
    return _BUFFERS[n]


class Fn(Function):
    @staticmethod
    def forward(ctx, x):
        out = buffer(x.numel())
        torch.mul(x, 2, out=out)
        ctx.out = out
        return out.clone()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.out
