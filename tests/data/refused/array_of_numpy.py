# refused: an array
import torch
from torch.autograd import Function


def to_numpy(t):
    return t.detach().cpu().numpy()


class Fn(Function):
    @staticmethod
    def forward(ctx, x):
        a = to_numpy(x)
        ctx.a = a
        return torch.tensor(a**3)

    @staticmethod
    def backward(ctx, g):
        return g * torch.tensor(3 * ctx.a**2)
