# refused: no slice
from chainer import cuda, function


class AnyOrder(function.Function):
    """The order in which a kernel adds decides what comes out."""

    def forward_gpu(self, inputs):
        x, = inputs
        self.total = abs(cuda.elementwise("T x", "raw T y", "atomicAdd(&y[0], x)", "total")(x, x.copy()))
        return x / self.total,

    def backward_gpu(self, inputs, grad_outputs):
        return grad_outputs[0] / self.total,
