import torch
from torch.autograd.gradcheck import gradcheck


class Fn(torch.autograd.Function):
    """Forward may leave before the locals that it keeps are bound."""

    @staticmethod
    def forward(ctx, x, w, plain):
        ctx.plain = plain
        if plain:
            return x * 2.0
        product = x @ w
        first, second = product.unbind(0)
        ctx.first = first
        ctx.second, ctx.count = second, 2
        ctx.x = x
        ctx.w = w
        return torch.stack((first * second, first))

    @staticmethod
    def backward(ctx, g):
        if ctx.plain:
            return g * 2.0, None, None
        inner = torch.stack((g[0] * ctx.second + g[1], g[0] * ctx.first))
        return inner @ ctx.w.t(), ctx.x.t() @ inner, None


def check(fn):
    torch.manual_seed(0)
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, w: fn.apply(x, w, False), (x, w))
    assert gradcheck(lambda x: fn.apply(x, w, True), (x,))
