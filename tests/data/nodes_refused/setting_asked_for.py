# refused: no slice
import chainer
from chainer import function


class Setting(function.Function):
    """By the time of backward the setting may be another."""

    def forward(self, inputs):
        x, = inputs
        if chainer.config.train:
            scale = x.sum()
        else:
            scale = x.max()
        self.scale = scale
        return x * self.scale,

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] * self.scale,
