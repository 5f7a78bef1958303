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
            self.a = numpy.tanh(a)
            self.gates = [_sigmoid(x) for x in xs]
            y = sum(gate * b for gate in self.gates) * self.a
        else:
            y = b
        return y,

    def backward(self, inputs, grad_outputs):
        gy, = grad_outputs
        b = list(_halves(inputs[-1], 3))[1]
        g = numpy.zeros_like(inputs[-1])
        gxs = []
        if isinstance(g, numpy.ndarray):
            g[0] = gy * (1 - self.a * self.a)
            for gate in self.gates:
                gxs.append(gy * self.a * b * gate * (1 - gate))
        return tuple(gxs) + (g,)


class Path(function.Function):
    def __init__(self, first=0.5):
        self.first = first

    def forward(self, inputs):
        x, = inputs
        self.steps = _steps(x, self.first)
        return x * self.steps,

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] * self.steps,


class Margin(function.Function):
    """Each device has a backward of its own, which changes what is its own by then."""

    def forward_cpu(self, inputs):
        x, t = inputs
        self.diff = numpy.copy(x)
        self.diff[:, 1] *= t
        self.diff = numpy.maximum(0, 1 + self.diff)
        return numpy.array(self.diff ** 2),

    def forward_gpu(self, inputs):
        x, t = inputs
        self.diff = numpy.maximum(0, 1 + _flip()(t, x.copy()))
        return self.diff ** 2,

    def backward_cpu(self, inputs, grad_outputs):
        t, gy = inputs[1], grad_outputs[0]
        self.diff[:, 1] *= t
        return 2 * gy * self.diff, None

    def backward_gpu(self, inputs, grad_outputs):
        t, gy = inputs[1], grad_outputs[0]
        self.diff = _flip()(t, self.diff)
        return 2 * gy * self.diff, None


class Filled(function.Function):
    """What is changed after it was made is made with the change."""

    def forward(self, inputs):
        x, = inputs
        self.ratio = x / x.sum()
        self.ratio[0] = 0
        return x * self.ratio,

    def backward(self, inputs, grad_outputs):
        return grad_outputs[0] * self.ratio,
