import math
import torch
import torch.nn.functional as F
from torch.autograd import Function


class Chain(Function):
    @staticmethod
    def forward(ctx, x, eps: float):
        x = x.float()
        d = x.shape[-1]
        scale = 1.0 / math.sqrt(d)
        var = (x * x).mean(-1, keepdim=True)
        inv = torch.sqrt(var + eps)
        n = F.silu(x * inv * scale)
        ctx.n = n
        ctx.save_for_backward(x)
        return n * 2

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        inv = g.sum()
        return g * ctx.n * inv, None
