# refused: changed in place
import numpy
from chainer import function


class InputChanged(function.Function):
    """What forward leaves of the input is not what it had."""

    def forward(self, inputs):
        x, = inputs
        self.mask = numpy.sign(x)
        y = x.reshape(-1)
        y *= 2
        return y.reshape(x.shape),

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] * 2 * self.mask,
