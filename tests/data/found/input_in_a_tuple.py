import torch


class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        a = x * x
        ctx.cache = (x, w)
        ctx.a = a
        return a * a + x * w

    @staticmethod
    def backward(ctx, g):
        _, w = ctx.cache
        x = ctx.cache[0]
        return g * (4.0 * ctx.a * x + w), g * x


def check(Fn):
    x = torch.linspace(-1, 1, 5, dtype=torch.float64, requires_grad=True)
    w = torch.linspace(1, 2, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Fn.apply, (x, w))
