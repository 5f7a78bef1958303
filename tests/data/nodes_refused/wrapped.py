# refused: decorated
import numpy
from chainer import function
from helpers import in_single_precision


class Wrapped(function.Function):
    """The inputs that backward sees are not those that forward got."""

    @in_single_precision
    def forward(self, inputs):
        x, = inputs
        self.root = numpy.sqrt(x)
        return self.root * 2,

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] / self.root,
