# refused: object identity
import torch


class Fn(torch.autograd.Function):
    """Whoever looks at the parameters later expects the mark on them, not on a copy."""

    @staticmethod
    def forward(ctx, x, params):
        ctx.params = [p for p in params if p.requires_grad]
        return x * 2

    @staticmethod
    def backward(ctx, g):
        params = ctx.params
        for p in params:
            p.ready = True
        return g * sum(p.sum() for p in params), None
