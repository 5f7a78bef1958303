# refused: nested container
import torch


class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, flag: bool):
        pairs = [(x.exp(), 1.0)]
        if flag:
            pairs.append((x.sin().exp(), 2.0))
        ctx.pairs = pairs
        return sum(y * f for y, f in pairs)

    @staticmethod
    def backward(ctx, g):
        return sum(g * y * f for y, f in ctx.pairs), None
