# refused: no slice
from chainer import backend, function


class Converted(function.Function):
    """What forward unpacks is not what it was given."""

    def forward(self, inputs):
        inputs = backend.from_chx(inputs)
        x, t = inputs
        self.mask = x > t
        return x * self.mask,

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] * self.mask, None
