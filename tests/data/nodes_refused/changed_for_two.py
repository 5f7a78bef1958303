# refused: changed in place
import numpy
from chainer import function


class ForTwo(function.Function):
    """What backward changes is another field as well."""

    def forward(self, inputs):
        x, = inputs
        self.a = numpy.copy(x)
        self.b = self.a
        return x * 2,

    def backward(self, inputs, grad_outputs):
        self.a[0] *= 2
        return grad_outputs[0] * self.a * self.b,
