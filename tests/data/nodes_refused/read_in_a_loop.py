# refused: set on some paths
from chainer import function


class InLoop(function.Function):
    """The loop may never read it, and forward may never have set it."""

    def __init__(self, count):
        self.count = count

    def forward(self, inputs):
        x, = inputs
        if self.count > 0:
            self.sign = x / abs(x)
        return x * 2,

    def backward(self, inputs, grad_outputs):
        g = grad_outputs[0]
        for _ in range(self.count):
            g = g * self.sign
        return g,
