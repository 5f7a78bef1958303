import numpy as np
from chainer import backend, function_node


class Difference(function_node.FunctionNode):
    """Both kinds of device make it in the same way, arrays with a graph of their own keep nothing."""

    def forward_chainerx(self, inputs):
        x, y = inputs
        difference = x - y
        return abs(difference),

    def forward_cpu(self, inputs):
        x, y = inputs
        self.retain_inputs((0, 1))
        difference = x - y
        return np.asarray(abs(difference)),

    def forward_gpu(self, inputs):
        x, y = inputs
        self.retain_inputs((0, 1))
        difference = x - y
        return abs(difference),

    def backward(self, indexes, grad_outputs):
        x, y = self.get_retained_inputs()
        difference = x.array - y.array
        gz, = grad_outputs
        gx = gz.array * np.sign(difference)
        return gx, -gx


class Hinge(function_node.FunctionNode):
    """Some inputs are retained, a name is taken, and the module of the array is asked for."""

    scale = 2

    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def forward(self, inputs):
        self.retain_inputs((0, 1))
        x, t, w = inputs
        xp = backend.get_array_module(x)
        distance = xp.maximum(self.margin - x * t, 0)
        mask = distance > 0
        loss = distance * w
        loss[~mask] = 0
        return loss * self.scale,

    def backward(self, indexes, grad_outputs):
        x, t = self.get_retained_inputs()
        saved_xp = backend.get_array_module(x.array)
        distance = saved_xp.maximum(self.margin - x.array * t.array, 0)
        mask = distance > 0
        xp = backend.get_array_module(x.array)
        gy, = grad_outputs
        return xp.where(mask, -gy.array, 0) * self.scale, None, None
