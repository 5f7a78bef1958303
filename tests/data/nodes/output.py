import numpy as np
import chainer
from chainer import utils


class Power(chainer.FunctionNode):
    def forward(self, x):
        self.retain_inputs((0, 1))
        self.y = x[0] ** x[1]
        return utils.force_array(self.y),

    def backward(self, indexes, gy):
        x, p = self.get_retained_inputs()
        return gy[0].array * p.array * self.y / x.array, gy[0].array * self.y * np.log(x.array)


class Twice(chainer.FunctionNode):
    """The input itself, read by a method for a device."""

    def forward_cpu(self, inputs):
        self.x = inputs[0]
        return np.square(inputs[0]),

    def backward(self, indexes, grad_outputs):
        return 2 * self.x * grad_outputs[0].array,


class Gate(chainer.Function):
    """An output of the older kind, made in one of two ways."""

    def __init__(self, slope):
        self.slope = slope

    def forward(self, inputs):
        x, = inputs
        if self.slope:
            self.gate = x * self.slope
        else:
            self.gate, _ = np.tanh(x), None
        return x, self.gate

    def backward(self, inputs, grad_outputs):
        gx, ggate = grad_outputs
        factor = self.slope if self.slope else 1 - self.gate * self.gate
        return gx + ggate * factor,
