# refused: may be a container
import torch

from hooks import trigger


class Fn(torch.autograd.Function):
    """A list, as likely as not: nothing would be saved of it."""

    @staticmethod
    def forward(ctx, params, x):
        ctx.params = params
        return x * 1

    @staticmethod
    def backward(ctx, g):
        trigger(ctx.params)
        return None, g


def watched(params: list[torch.Tensor], x: torch.Tensor):
    return Fn.apply(params, x)
