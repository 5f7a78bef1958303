# refused: changed in place
import numpy
from chainer import function


class Changed(function.Function):
    def forward(self, inputs):
        x, = inputs
        self.ratio = x / x.sum()
        self.ratio[0] = 0
        return x * self.ratio,

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] * self.ratio,
