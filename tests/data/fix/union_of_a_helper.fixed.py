import torch
from torch import Tensor


def scaled(x: Tensor, count: torch.LongTensor | int, bias: Tensor | None) -> Tensor:
    return x * count if bias is None else x * count + bias


class UnionOfAHelper(torch.autograd.Function):
    """What a helper's annotation allows to be a number may be one, though it may be a tensor as well."""

    @staticmethod
    def forward(ctx, x, count, bias):
        ctx.count = None if isinstance(count, torch.Tensor) else count
        ctx.save_for_backward(count if isinstance(count, torch.Tensor) else None, bias)
        return scaled(x, count, bias)

    @staticmethod
    def backward(ctx, g):
        count, bias = ctx.saved_tensors
        count = ctx.count if count is None else count
        return scaled(g, count, None), None, None if bias is None else g
