# refused: side channel
import torch
from torch.autograd import Function


class Fn(Function):
    @staticmethod
    def forward(x):
        values, order = torch.sort(x)
        Fn.order = order
        return values

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.order = Fn.order

    @staticmethod
    def backward(ctx, g):
        return torch.zeros_like(g).scatter(0, ctx.order, g)
