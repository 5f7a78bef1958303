# refused: changed in place
import numpy
from chainer import function


class Changed(function.Function):
    """It is changed under another name."""

    def forward(self, inputs):
        x, = inputs
        ratio = x / x.sum()
        self.ratio = ratio
        first = ratio[0]
        first *= 0
        return x * self.ratio,

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] * self.ratio,
