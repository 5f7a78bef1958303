# refused: called without apply
from types import SimpleNamespace

import torch
from torch.autograd import Function


class Fn(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = torch.softmax(x, -1)
        return ctx.y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.y


def by_hand(x):
    return Fn.forward(SimpleNamespace(), x)
