# refused: no contract
import numpy
from chainer import function_node


class Drop(function_node.FunctionNode):
    def forward(self, inputs):
        self.mask = numpy.random.rand(*inputs[0].shape) > 0.5
        return inputs[0] * self.mask,

    def backward(self, indexes, grad_outputs):
        return grad_outputs[0] * self.mask,
