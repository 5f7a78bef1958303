# refused: object
from torch.autograd import Function


class Pair:
    def __init__(self, data, scale):
        self.data, self.scale = data, scale


class Fn(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.pair = Pair(w.round(), w.abs().amax())
        return x * ctx.pair.data

    @staticmethod
    def backward(ctx, g):
        return g * ctx.pair.data * ctx.pair.scale, None
