import numpy as np
import chainer
from chainer import utils


class Power(chainer.FunctionNode):
    def forward(self, x):
        self.retain_inputs((0, 1))
        y = x[0] ** x[1]
        self.retain_outputs((0,))
        return utils.force_array(y),

    def backward(self, indexes, gy):
        y, = self.get_retained_outputs()
        x, p = self.get_retained_inputs()
        return gy[0].array * p.array * y.array / x.array, gy[0].array * y.array * np.log(x.array)


class Twice(chainer.FunctionNode):
    """The input itself, read by a method for a device."""

    def forward_cpu(self, inputs):
        self.retain_inputs((0,))
        return np.square(inputs[0]),

    def backward(self, indexes, grad_outputs):
        x0, = self.get_retained_inputs()
        return 2 * x0.array * grad_outputs[0].array,


class Gate(chainer.Function):
    """An output of the older kind, made in one of two ways."""

    def __init__(self, slope):
        self.slope = slope

    def forward(self, inputs):
        x, = inputs
        if self.slope:
            gate = x * self.slope
        else:
            gate, _ = np.tanh(x), None
        self.retain_outputs((1,))
        return x, gate

    def backward(self, inputs, grad_outputs):
        gate = self.output_data[1]
        gx, ggate = grad_outputs
        factor = self.slope if self.slope else 1 - gate * gate
        return gx + ggate * factor,
