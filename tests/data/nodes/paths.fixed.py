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
            saved_bad = xp.logical_or(bad, x < -1)
            y[saved_bad] = 0
        return y,

    def backward(self, indexes, grad_outputs):
        x, = self.get_retained_inputs()
        gy, = grad_outputs
        gx = gy.array * 2
        if self.check:
            xp = backend.get_array_module(x.array)
            bad = x.array > 1
            saved_bad = xp.logical_or(bad, x.array < -1)
            gx = numpy.where(saved_bad, 0, gx)
        return gx,


class Counted(function_node.FunctionNode):
    """Where forward ends early, it is None, and tests of host values tell which way it went."""

    def __init__(self, reduce, normalize):
        self.reduce = reduce
        self.normalize = normalize

    def forward(self, inputs):
        self.retain_inputs((0, 1))
        x, t = inputs
        ignore = t == 0
        loss = numpy.where(ignore, 0, x * t)
        if not self.reduce == "mean":
            return loss,
        if self.normalize:
            count = numpy.maximum(1, ignore.sum())
        else:
            count = max(1, len(x))
        return numpy.asarray(loss.sum() / count),

    def backward(self, indexes, grad_outputs):
        x, t = self.get_retained_inputs()
        ignore = t.array == 0
        count = None
        if self.reduce == "mean":
            if self.normalize:
                saved_count = numpy.maximum(1, ignore.sum())
            else:
                saved_count = max(1, len(x.array))
            count = saved_count
        gy, = grad_outputs
        gx = numpy.where(ignore, 0, gy.array * numpy.ones_like(x.array))
        return gx if count is None else gx / count, None


class Fused(function.Function):
    """Nobody can ask again which way forward went, so it notes it."""

    has_inverse = False

    def __init__(self, eps=0.5):
        self.eps = eps

    def forward(self, inputs):
        x, var = inputs
        if self.usable(var):
            self.has_inverse = False
            y = x / numpy.sqrt(var + self.eps)
        else:
            var = var + self.eps
            inverse = numpy.reciprocal(var)
            root = numpy.sqrt(inverse, dtype=inverse.dtype)
            self.has_inverse = True
            y = x * root
        return y,

    def usable(self, var):
        return bool(var.sum() > 6)

    def backward(self, inputs, grad_outputs):
        inverse = None
        root = None
        if self.has_inverse:
            saved_var = inputs[1] + self.eps
            inverse = numpy.reciprocal(saved_var)
            root = numpy.sqrt(inverse, dtype=inverse.dtype)
        gy, = grad_outputs
        var = inputs[1] + self.eps
        if inverse is None:
            return gy / numpy.sqrt(var), None
        return gy * root, -gy * inputs[0] * root * inverse / 2


class FusedGrad(function_node.FunctionNode):
    """What the constructor is given is used, unless it is None."""

    def __init__(self, inverse=None):
        self.inverse = inverse

    def forward(self, inputs):
        inverse = self.inverse
        self.retain_inputs((0, 1))
        x, var = inputs
        if inverse is None:
            inverse = numpy.reciprocal(var)
        scale = numpy.sqrt(inverse)
        return x * scale,

    def backward(self, indexes, grad_outputs):
        x, var = self.get_retained_inputs()
        inverse = self.inverse
        if inverse is None:
            inverse = numpy.reciprocal(var.array)
        scale = numpy.sqrt(inverse)
        gy, = grad_outputs
        return gy.array * scale, gy.array * x.array * inverse


class Elsewhere(function_node.FunctionNode):
    """One path is another method's, which retains the same."""

    def __init__(self, plain):
        self.plain = plain
        self.width = 1
        self.has_scale = False

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
        scale = 2 + total
        self.has_scale = True
        return x / scale,

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
        scale = None
        if self.has_scale:
            square = numpy.square(x.array)
            total = square.copy()
            for saved_i in range(1, self.width + 1):
                total[:, saved_i:] += square[:, :-saved_i]
                total[:, :-saved_i] += square[:, saved_i:]
            scale = 2 + total
        gy, = grad_outputs
        i = 3 if self.plain else 4
        if scale is None:
            return gy.array * i,
        return gy.array / scale - 2 * gy.array * x.array ** 2 / scale ** 2,
