# refused: mixed container
from torch import Tensor
from torch.autograd import Function

from kernels import parts, put


class Fn(Function):
    """A list, a tuple, or something that looks like one: rebuilt, it might be another thing."""

    @staticmethod
    def forward(ctx, x: Tensor, flag: bool):
        some = parts(x)
        every = [*some, flag] if flag else some
        ctx.every = every
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return put(g, ctx.every), None
