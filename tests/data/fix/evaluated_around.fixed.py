import torch


class EvaluatedAround(torch.autograd.Function):
    """What stands in a default, a class body or a decorator is read when the function around it runs."""

    @staticmethod
    def forward(ctx, x, w):
        left = x @ w
        right = w @ x
        both = x @ x
        last = w @ w
        ctx.save_for_backward(left, right, both, last)
        return left * right * both * last

    @staticmethod
    def backward(ctx, g):
        left, saved_right, saved_both, last = ctx.saved_tensors
        def scaled(value=left):
            return value * g

        class Kept:
            right = saved_right

            def times(self, value, both=saved_both):
                return self.right * value * both

        @(lambda function: (function, last)[0])
        def done():
            return Kept().times(scaled())

        pick = lambda value=last: value
        return done() * pick(), None
