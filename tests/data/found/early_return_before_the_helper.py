import torch
from torch.autograd.gradcheck import gradcheck


def keep(ctx, value):
    ctx.product = value


class Fn(torch.autograd.Function):
    """Forward may leave before it calls the helper that keeps a value."""

    @staticmethod
    def forward(ctx, x, w, plain):
        ctx.plain = plain
        if plain:
            return x * 2.0
        product = x @ w
        keep(ctx, product)
        ctx.x = x
        ctx.w = w
        return product * product

    @staticmethod
    def backward(ctx, g):
        if ctx.plain:
            return g * 2.0, None, None
        inner = 2.0 * g * ctx.product
        return inner @ ctx.w.t(), ctx.x.t() @ inner, None


def check(fn):
    torch.manual_seed(0)
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, w: fn.apply(x, w, False), (x, w))
    assert gradcheck(lambda x: fn.apply(x, w, True), (x,))
