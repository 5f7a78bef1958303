# refused: changed in backward
import torch

from kernels import accumulate


class Fn(torch.autograd.Function):
    """The kernel may well write into it."""

    @staticmethod
    def forward(ctx, x, grad_buffer: torch.Tensor):
        ctx.save_for_backward(x)
        ctx.grad_buffer = grad_buffer
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return accumulate(ctx.grad_buffer, g, x), None
