# refused: no contract
from chainer import function


def _rows(a):
    return (a[i] for i in range(len(a)))


class Consumed(function.Function):
    def forward(self, inputs):
        x, = inputs
        rows = _rows(x)
        first = next(rows)
        self.rest = list(rows)
        return x * first,

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] * self.rest[0],


class Zipped(function.Function):
    def forward(self, inputs):
        x, t = inputs
        pairs = zip(x, t)
        y = sum(a * b for a, b in pairs)
        self.rest = [a + b for a, b in pairs]
        return x * y,

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] * len(self.rest),
