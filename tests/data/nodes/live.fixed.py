import numpy
from chainer import function


class Centred(function.Function):
    """The older kind is given the inputs."""

    def __init__(self):
        self.factor = 3

    def forward(self, inputs):
        weights, x = inputs
        centred = x - x.mean(axis=0, keepdims=True)
        x = x * self.factor
        return centred * weights * x,

    def backward(self, inputs, grad_outputs):
        centred = inputs[1] - inputs[1].mean(axis=0, keepdims=True)
        gy, = grad_outputs
        x = inputs[1] * self.factor
        gc = gy * inputs[0] * x
        return gy * centred * x, gc - gc.mean(axis=0) + gy * centred * inputs[0] * self.factor


class Mask(function.Function):
    def forward_cpu(self, inputs):
        mask = inputs[0] > 0
        return inputs[0] * mask,

    def backward_cpu(self, inputs, grad_outputs):
        x, = inputs
        mask = x > 0
        x = numpy.sign(x)
        return grad_outputs[0] * mask,


class Scaled(function.Function):
    """Names are bound again, and what is changed in place shares nothing with the inputs."""

    def __init__(self, eps=1e-5):
        self.eps = eps
        self.mean = numpy.zeros(4)

    def forward(self, inputs):
        x, gamma = inputs
        axis = tuple(range(x.ndim - gamma.ndim))
        var = x.var(axis=axis, dtype=gamma.dtype)
        std = numpy.sqrt(var + self.eps, dtype=var.dtype)
        gamma = gamma[None]
        y = gamma * x
        y /= std
        y = y.astype(x.dtype, copy=False)
        y += 1
        mean = numpy.array(x.mean(axis=axis))
        mean *= 0.5
        self.mean += mean
        return y,

    def backward(self, inputs, grad_outputs):
        _, gamma = inputs
        axis = tuple(range(inputs[0].ndim - gamma.ndim))
        var = inputs[0].var(axis=axis, dtype=gamma.dtype)
        std = numpy.sqrt(var + self.eps, dtype=var.dtype)
        gy, = grad_outputs
        gamma = gamma[None] * 1
        return gy * gamma / std, (gy / std).sum(axis=0)


class Turned(function.Function):
    def forward(self, inputs):
        x, = inputs
        return x * 2,

    def backward(self, inputs, grad_outputs):
        turned = inputs[0].T
        return grad_outputs[0] * turned.T,
