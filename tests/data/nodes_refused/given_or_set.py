# refused: set on some paths
import numpy
from chainer import function


class GivenOrSet(function.Function):
    """Nobody can tell by the time of backward whether forward set it."""

    def __init__(self, scale):
        self.scale = scale

    def forward(self, inputs):
        x, = inputs
        if self.usable(x):
            self.scale = abs(x)
        return x * self.scale,

    def usable(self, x):
        return bool(numpy.any(x > 0))

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] * self.scale,
