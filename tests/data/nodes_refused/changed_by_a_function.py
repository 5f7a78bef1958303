# refused: changed in place
from chainer import function


def _doubled(x):
    x *= 2
    return x


class ByFunction(function.Function):
    def forward(self, inputs):
        x, = inputs
        y = x + 1
        z = _doubled(y)
        self.mask = y > 0
        return x * self.mask * z,

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] * self.mask,
