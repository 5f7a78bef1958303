# refused: changed in place
from chainer import function


class Popped(function.Function):
    def forward(self, inputs):
        x, = inputs
        parts = [x * 2, x * 3]
        y = parts.pop()
        self.rest = parts[-1]
        return x * y,

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] * self.rest,
