# refused: set on some paths
import numpy
from chainer import function


class InElif(function.Function):
    def __init__(self, mode):
        self.mode = mode

    def forward(self, inputs):
        x, = inputs
        if self.mode == 2:
            self.mask = numpy.sign(x)
        return x * 2,

    def backward(self, inputs, grad_outputs):
        if self.mode == 1:
            return grad_outputs[0],
        elif self.mode == 2 and self.mask.any():
            return grad_outputs[0] * 2,
        return grad_outputs[0] * 3,
