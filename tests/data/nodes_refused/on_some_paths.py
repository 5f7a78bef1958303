# refused: set on some paths
import numpy
from chainer import function


class Maybe(function.Function):
    def __init__(self, check):
        self.check = check

    def forward(self, inputs):
        x, = inputs
        if self.check:
            self.bad = numpy.isnan(x)
        return x * 2,

    def backward(self, indexes, grad_outputs):
        return numpy.where(self.bad, 0, grad_outputs[0]),
