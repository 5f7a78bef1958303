import numpy
from chainer import cuda, function


def _halves(x, count):
    """Views of an array, one behind the other."""
    r = x.reshape((count, -1) + x.shape[1:])
    return (r[i] for i in range(count))


def _sigmoid(x):
    half = x.dtype.type(0.5)
    return numpy.tanh(x * half) * half + half


def _steps(x, first):
    steps = numpy.full(x.shape, first, dtype=x.dtype)
    steps[1:] = x[:-1]
    return steps


def _flip():
    return cuda.elementwise("T t", "raw T y", "y[i] *= t", "flip")


class Gates(function.Function):
    """What functions of the module make, a list of arrays, all of the inputs."""

    def __init__(self, reverse=False):
        self.reverse = reverse

    def forward(self, inputs):
        xs, last = inputs[:-1], inputs[-1]
        a, b = list(_halves(last, 3))[:2]
        if isinstance(last, numpy.ndarray):
            saved_a = numpy.tanh(a)
            gates = [_sigmoid(x) for x in xs]
            y = sum(gate * b for gate in gates) * saved_a
        else:
            y = b
        return y,

    def backward(self, inputs, grad_outputs):
        gy, = grad_outputs
        b = list(_halves(inputs[-1], 3))[1]
        g = numpy.zeros_like(inputs[-1])
        gxs = []
        if isinstance(g, numpy.ndarray):
            xs = inputs[:-1]
            last = inputs[-1]
            a, saved_b = list(_halves(last, 3))[:2]
            saved_a = numpy.tanh(a)
            gates = [_sigmoid(x) for x in xs]
            g[0] = gy * (1 - saved_a * saved_a)
            for gate in gates:
                gxs.append(gy * saved_a * b * gate * (1 - gate))
        return tuple(gxs) + (g,)


class Path(function.Function):
    def __init__(self, first=0.5):
        self.first = first

    def forward(self, inputs):
        x, = inputs
        steps = _steps(x, self.first)
        return x * steps,

    def backward(self, inputs, grad_outputs):
        steps = _steps(inputs[0], self.first)
        return grad_outputs[0] * steps,


class Margin(function.Function):
    """Each device has a backward of its own, which changes what is its own by then."""

    def forward_cpu(self, inputs):
        x, t = inputs
        diff = numpy.copy(x)
        diff[:, 1] *= t
        diff = numpy.maximum(0, 1 + diff)
        return numpy.array(diff ** 2),

    def forward_gpu(self, inputs):
        x, t = inputs
        diff = numpy.maximum(0, 1 + _flip()(t, x.copy()))
        return diff ** 2,

    def backward_cpu(self, inputs, grad_outputs):
        diff = numpy.copy(inputs[0])
        diff[:, 1] *= inputs[1]
        diff = numpy.maximum(0, 1 + diff)
        t, gy = inputs[1], grad_outputs[0]
        diff[:, 1] *= t
        return 2 * gy * diff, None

    def backward_gpu(self, inputs, grad_outputs):
        diff = numpy.maximum(0, 1 + _flip()(inputs[1], inputs[0].copy()))
        t, gy = inputs[1], grad_outputs[0]
        diff = _flip()(t, diff)
        return 2 * gy * diff, None


class Filled(function.Function):
    """What is changed after it was made is made with the change."""

    def forward(self, inputs):
        x, = inputs
        ratio = x / x.sum()
        ratio[0] = 0
        return x * ratio,

    def backward(self, inputs, grad_outputs):
        ratio = inputs[0] / inputs[0].sum()
        ratio[0] = 0
        return grad_outputs[0] * ratio,
