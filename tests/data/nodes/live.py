import numpy
from chainer import function


class Centred(function.Function):
    """The older kind is given the inputs."""

    def __init__(self):
        self.centred = None
        self.factor = 3

    def forward(self, inputs):
        self.weights, x = inputs
        self.centred = x - x.mean(axis=0, keepdims=True)
        x = x * self.factor
        return self.centred * self.weights * x,

    def backward(self, inputs, grad_outputs):
        gy, = grad_outputs
        x = inputs[1] * self.factor
        gc = gy * self.weights * x
        return gy * self.centred * x, gc - gc.mean(axis=0) + gy * self.centred * self.weights * self.factor


class Mask(function.Function):
    def forward_cpu(self, inputs):
        self.mask = inputs[0] > 0
        return inputs[0] * self.mask,

    def backward_cpu(self, inputs, grad_outputs):
        x, = inputs
        x = numpy.sign(x)
        return grad_outputs[0] * self.mask,


class Scaled(function.Function):
    """Names are bound again, and what is changed in place shares nothing with the inputs."""

    def __init__(self, eps=1e-5):
        self.eps = eps
        self.mean = numpy.zeros(4)

    def forward(self, inputs):
        x, gamma = inputs
        axis = tuple(range(x.ndim - gamma.ndim))
        var = x.var(axis=axis, dtype=gamma.dtype)
        self.std = numpy.sqrt(var + self.eps, dtype=var.dtype)
        gamma = gamma[None]
        y = gamma * x
        y /= self.std
        y = y.astype(x.dtype, copy=False)
        y += 1
        mean = numpy.array(x.mean(axis=axis))
        mean *= 0.5
        self.mean += mean
        return y,

    def backward(self, inputs, grad_outputs):
        _, gamma = inputs
        gy, = grad_outputs
        gamma = gamma[None] * 1
        return gy * gamma / self.std, (gy / self.std).sum(axis=0)


class Turned(function.Function):
    def forward(self, inputs):
        x, = inputs
        self.turned = x.T
        return x * 2,

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] * self.turned.T,
