# refused: changed in backward
import torch


class Fn(torch.autograd.Function):
    """Two calls share the buffer, and the backward of one writes into it before that of the other reads it."""

    @staticmethod
    def forward(ctx, x, buffer: torch.Tensor):
        ctx.buffer = buffer
        return x * 2

    @staticmethod
    def backward(ctx, g):
        ctx.buffer[: g.shape[0]] = g
        return ctx.buffer[: g.shape[0]] * 2, None
