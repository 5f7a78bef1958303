import torch
from torch.autograd import Function


class NumberOrTensor(Function):
    """The divisor is a number unless weights are given."""

    @staticmethod
    def forward(ctx, x, w, weighted):
        total = w.sum()
        count = 1
        if weighted:
            count = x.shape[0] if x.dim() == 1 else total
        ctx.count = None if isinstance(count, torch.Tensor) else count
        ctx.save_for_backward(x, w, count if isinstance(count, torch.Tensor) else None)
        return x.exp() * w / count

    @staticmethod
    def backward(ctx, g):
        x, w, count = ctx.saved_tensors
        count = ctx.count if count is None else count
        share = 1 / count.item() if isinstance(count, torch.Tensor) else 1 / count
        return g * x.exp() * w * share, g * x.exp() * share, None
