import torch


class EvaluatedAround(torch.autograd.Function):
    """What stands in a default, a class body or a decorator is read when the function around it runs."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.left = x @ w
        ctx.right = w @ x
        ctx.both = x @ x
        ctx.last = w @ w
        return ctx.left * ctx.right * ctx.both * ctx.last

    @staticmethod
    def backward(ctx, g):
        def scaled(value=ctx.left):
            return value * g

        class Kept:
            right = ctx.right

            def times(self, value, both=ctx.both):
                return self.right * value * both

        @(lambda function: (function, ctx.last)[0])
        def done():
            return Kept().times(scaled())

        pick = lambda value=ctx.last: value
        return done() * pick(), None
