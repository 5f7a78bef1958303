# refused: set on some paths
import numpy
from chainer import function


class FallenBack(function.Function):
    def forward(self, inputs):
        x, = inputs
        if x.ndim > 2:
            return self.other(inputs)
        self.mask = x > 0
        return x * self.mask,

    def other(self, inputs):
        return inputs[0],

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] * self.mask,
