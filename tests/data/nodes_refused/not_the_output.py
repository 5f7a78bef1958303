# refused: not the output itself
import numpy
from chainer import function_node


class NotTheOutput(function_node.FunctionNode):
    def forward(self, inputs):
        self.y = numpy.dot(inputs[0], inputs[0])
        if self.y.ndim == 0:
            return numpy.asarray(self.y),
        return self.y,

    def backward(self, indexes, grad_outputs):
        return grad_outputs[0] * self.y,
