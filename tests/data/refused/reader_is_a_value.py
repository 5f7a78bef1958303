# refused: ctx escapes
import torch
from torch.autograd import Function


class Fn(Function):
    @staticmethod
    def forward(ctx, x, rule):
        ctx.rule = rule
        ctx.h = torch.tanh(x)
        return ctx.h * 2

    @staticmethod
    def backward(ctx, g):
        return ctx.rule(ctx, g * ctx.h), None
