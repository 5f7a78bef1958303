# refused: no slice
from chainer import function


class InputOrNot(function.Function):
    """It is an input on one path, and made on the other."""

    def __init__(self, double):
        self.double = double

    def forward(self, inputs):
        x, = inputs
        if self.double:
            x = x * 2
        self.mask = x > 0
        return x * self.mask,

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] * self.mask,
