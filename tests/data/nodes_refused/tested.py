# refused: tested for
import numpy
from chainer import function


class Tested(function.Function):
    def forward(self, inputs):
        x, = inputs
        self.mask = x > 0
        return x * self.mask,

    def backward(self, inputs, grad_outputs):
        if self.mask is not None:
            return grad_outputs[0] * self.mask,
        return grad_outputs[0],
