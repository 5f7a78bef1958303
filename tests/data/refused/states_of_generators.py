# refused: generator state
import torch
from torch.autograd import Function

from elsewhere import tracker


class Fn(Function):
    @staticmethod
    def forward(ctx, x, run):
        ctx.states = tracker().get_states()
        return run(x)

    @staticmethod
    def backward(ctx, g):
        tracker().set_states(ctx.states)
        return g * torch.rand_like(g), None
