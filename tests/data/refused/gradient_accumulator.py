# refused: accumulated gradient
import torch

from kernels import accumulate


class Fn(torch.autograd.Function):
    """The buffer takes the gradients of every call: its version has moved on by the time of the second backward."""

    @staticmethod
    def forward(ctx, x, weight):
        buffer = weight.main_grad
        ctx.save_for_backward(x, weight)
        ctx.buffer = buffer
        return x * weight

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        buffer = ctx.buffer
        accumulate(buffer, g, x)
        return g * weight, None
