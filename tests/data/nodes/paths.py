import numpy
from chainer import backend, function, function_node


class Checked(function_node.FunctionNode):
    """Backward reads it under a test of its own, and there only."""

    def __init__(self, check):
        self.check = check

    def forward(self, inputs):
        self.retain_inputs((0,))
        x, = inputs
        xp = backend.get_array_module(x)
        y = x * 2
        if self.check:
            bad = x > 1
            self.bad = xp.logical_or(bad, x < -1)
            y[self.bad] = 0
        return y,

    def backward(self, indexes, grad_outputs):
        x, = self.get_retained_inputs()
        gy, = grad_outputs
        gx = gy.array * 2
        if self.check:
            gx = numpy.where(self.bad, 0, gx)
        return gx,


class Counted(function_node.FunctionNode):
    """Where forward ends early, it is None, and tests of host values tell which way it went."""

    def __init__(self, reduce, normalize):
        self.reduce = reduce
        self.normalize = normalize
        self.count = None

    def forward(self, inputs):
        self.retain_inputs((0,))
        x, t = inputs
        self.ignore = t == 0
        loss = numpy.where(self.ignore, 0, x * t)
        if not self.reduce == "mean":
            return loss,
        if self.normalize:
            count = numpy.maximum(1, self.ignore.sum())
        else:
            count = max(1, len(x))
        self.count = count
        return numpy.asarray(loss.sum() / self.count),

    def backward(self, indexes, grad_outputs):
        x, = self.get_retained_inputs()
        gy, = grad_outputs
        gx = numpy.where(self.ignore, 0, gy.array * numpy.ones_like(x.array))
        return gx if self.count is None else gx / self.count, None


class Fused(function.Function):
    """Nobody can ask again which way forward went, so it notes it."""

    inverse = None
    root = None

    def __init__(self, eps=0.5):
        self.eps = eps

    def forward(self, inputs):
        x, var = inputs
        if self.usable(var):
            self.inverse = None
            y = x / numpy.sqrt(var + self.eps)
        else:
            var = var + self.eps
            self.inverse = numpy.reciprocal(var)
            self.root = numpy.sqrt(self.inverse, dtype=self.inverse.dtype)
            y = x * self.root
        return y,

    def usable(self, var):
        return bool(var.sum() > 6)

    def backward(self, inputs, grad_outputs):
        gy, = grad_outputs
        var = inputs[1] + self.eps
        if self.inverse is None:
            return gy / numpy.sqrt(var), None
        return gy * self.root, -gy * inputs[0] * self.root * self.inverse / 2


class FusedGrad(function_node.FunctionNode):
    """What the constructor is given is used, unless it is None."""

    def __init__(self, inverse=None):
        self.inverse = inverse

    def forward(self, inputs):
        self.retain_inputs((0,))
        x, var = inputs
        if self.inverse is None:
            self.inverse = numpy.reciprocal(var)
        self.scale = numpy.sqrt(self.inverse)
        return x * self.scale,

    def backward(self, indexes, grad_outputs):
        x, = self.get_retained_inputs()
        gy, = grad_outputs
        return gy.array * self.scale, gy.array * x.array * self.inverse


class Elsewhere(function_node.FunctionNode):
    """One path is another method's, which retains the same."""

    def __init__(self, plain):
        self.plain = plain
        self.width = 1
        self.scale = None

    def forward_cpu(self, inputs):
        if self.plain:
            return self.forward_plain(inputs)
        self.retain_inputs((0,))
        x, = inputs
        square = numpy.square(x)
        total = square.copy()
        for i in range(1, self.width + 1):
            total[:, i:] += square[:, :-i]
            total[:, :-i] += square[:, i:]
        self.scale = 2 + total
        return x / self.scale,

    def forward_plain(self, inputs):
        x, = inputs
        self.retain_inputs((0,))
        return x * 3,

    def forward_gpu(self, inputs):
        x, = inputs
        self.retain_inputs((0,))
        return x * 4,

    def backward(self, indexes, grad_outputs):
        x, = self.get_retained_inputs()
        gy, = grad_outputs
        i = 3 if self.plain else 4
        if self.scale is None:
            return gy.array * i,
        return gy.array / self.scale - 2 * gy.array * x.array ** 2 / self.scale ** 2,
