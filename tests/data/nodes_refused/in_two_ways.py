# refused: made in different ways
import numpy
from chainer import function


class TwoWays(function.Function):
    def forward_cpu(self, inputs):
        x, = inputs
        self.mask = x > 0
        return x * self.mask,

    def forward_gpu(self, inputs):
        x, = inputs
        self.mask = x >= 0
        return x * self.mask,

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] * self.mask,
