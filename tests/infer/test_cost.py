"""RECOMPUTE or SAVE: what the live inputs give back, and what they can't."""

from __future__ import annotations

import pytest

from tests.infer.judging import classes, function, judged


def of(forward: str, reads: str, signature: str = "x", module: str = "", backward: str = "grad") -> dict[str, str]:
    return classes(function(forward, reads, signature, module, backward))


@pytest.mark.parametrize("call", ["ext.fill(x, ctx.room[0])", "load('ext').fill(x, room[0])", "room[0].copy_(x @ x)"])
def test_buffers_in_a_list_are_filled_by_what_they_are_given_to(call: str) -> None:
    body = f"room = [x.new_empty(0), x.new_empty(0)]\nctx.room = room\n{call}\nreturn x"
    assert of(body, "room", "x: Tensor", "ext = load('ext')") == {"room": "SAVE"}


def test_an_empty_buffer_stays_cheap() -> None:
    assert of("ctx.room = x.new_empty(3)\nreturn x", "room", "x: Tensor") == {"room": "RECOMPUTE"}


def test_parts_of_an_opaque_result_are_as_dear_as_the_whole() -> None:
    body = "out = ext.pack(x)\nctx.packed = out.values_packed\nreturn x"
    assert of(body, "packed", "x: Tensor", "import ext") == {"packed": "SAVE"}


def test_parts_of_a_tensor_subclass_that_is_an_input_are_at_hand() -> None:
    assert of("ctx.inner = w.packed_values\nreturn x @ w", "inner", "x: Tensor, w: Tensor") == {"inner": "RECOMPUTE"}


def test_a_subclass_of_tensor_at_any_remove_is_a_tensor() -> None:
    module = """
    import ext
    class Packed(torch.Tensor):
        def __new__(cls, shape, values):
            return torch.Tensor._make_wrapper_subclass(cls, shape)
    class Better(Packed):
        def extra(self):
            return 1
    """
    body = "p = Better(x.shape, values=ext.pack(x))\nctx.p = p\nreturn x"
    assert of(body, "p", "x: Tensor", module) == {"p": "SAVE"}


INNER = """
class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.mark_dirty()
        return t.view_as(t)
    @staticmethod
    def backward(ctx, grad):
        return grad
class Heavy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t)
        return t @ t
    @staticmethod
    def backward(ctx, grad):
        return grad
class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        torch.distributed.all_reduce(t)
        return t
    @staticmethod
    def backward(ctx, grad):
        return grad
"""


@pytest.mark.parametrize(("inner", "cls"), [("Same", "RECOMPUTE"), ("Heavy", "SAVE"), ("Summed", "SAVE")])
def test_an_inner_function_is_as_dear_as_what_its_forward_does(inner: str, cls: str) -> None:
    found = classes(
        function(f"y = {inner}.apply(x * 1)\nctx.y = y\nreturn y.sum()", "y", "x: Tensor", INNER), type_name="F"
    )
    assert found == {"y": cls}


def test_storage_swapped_through_data_is_that_of_its_source() -> None:
    body = "y = torch.empty(1)\ny.data = x.data\nctx.y = y\nreturn x.sum()"
    assert of(body, "y", "x: Tensor") == {"y": "RECOMPUTE"}


@pytest.mark.parametrize(
    "call",
    ["torch.get_rng_state()", "torch.cuda.get_rng_state()", "rng_tracker().get_states()", "generator.clone_state()"],
)
def test_generator_state_is_random(call: str) -> None:
    field = judged(function(f"ctx.state = {call}\nreturn x", "state", "x: Tensor"))["state"]
    assert (field.cls.value, field.rule) == ("SAVE", "CL105")


# -- layers ------------------------------------------------------------------------------------------------------------

LAYER = """
class Parameter:
    def __init__(self, value):
        self.value = value
class Child:
    def forward(self, x):
        self.seen = x
        return x * 2
    def backward(self, grad, x):
        return (grad * 2,)
class Layer:
    def __init__(self, width, count):
        self.child = Child()
        self.children = [Child() for _ in range(count)]
        self.weight = Parameter(torch.randn(width))
        self.all_weights = [Parameter(torch.randn(width)) for _ in range(count)]
    def pick(self, x):
        top = torch.topk(x, 2)
        return top.values, top.indices
    def forward(self, x, scale):
        self.weighted = x * self.weight.value
        self.first = self.all_weights[0].value
        self.total = x + self.child.forward(x)
        outs = {}
        for number, child in enumerate(self.children):
            outs[number] = child.forward(x)
        self.outs = outs
        values, indices = self.pick(x)
        self.indices = indices
        self.half = scale * 0.5
        self.doubled = x * 2
        return self.total * self.half
    def backward(self, grad, x):
        use(self.weighted, self.first, self.total, self.outs, self.indices, self.half, self.doubled)
        return (grad, None)
"""


def test_a_layer_field_by_field() -> None:
    assert classes(LAYER, type_name="Layer") == {
        "weighted": "RECOMPUTE",  # a parameter is at hand in backward, however it was initialised
        "first": "RECOMPUTE",
        "total": "SAVE",  # a child's result can't be derived
        "outs": "SAVE",
        "indices": "SAVE",
        "half": "SAVE",  # backward is not given scale
        "doubled": "RECOMPUTE",
    }


def test_the_reason_names_the_input_that_backward_is_not_given() -> None:
    assert "backward is not given `scale`" in judged(LAYER, type_name="Layer")["half"].reason


def test_a_layer_whose_backward_takes_no_inputs_keeps_the_convention() -> None:
    source = """
    class Plain:
        def forward(self, x):
            self.x = x
            self.mask = x > 0
            return x * self.mask
        def backward(self, grad):
            return grad * self.mask * self.x
    """
    assert classes(source) == {"x": "RECOMPUTE", "mask": "RECOMPUTE"}


# -- resolution --------------------------------------------------------------------------------------------------------


def test_the_resolution_names_tensors_and_the_line() -> None:
    source = function("n = eps * 2\nctx.m = (x > 0) & (y < n)\nreturn x", "m", "x: Tensor, y: Tensor, eps: float")
    field = judged(source)["m"]
    assert field.resolution == f"save_for_backward(x, y), recompute in backward, as on line {field.line}"


# -- kernels -----------------------------------------------------------------------------------------------------------


def test_a_small_buffer_passed_in_the_place_of_an_input_does_not_make_it_opaque() -> None:
    module = """
    @triton.jit
    def kernel(a, b, out):
        pass
    """
    body = """
    ratio = ratio.contiguous() if ratio is not None else torch.empty(1)
    out = torch.empty_like(x)
    kernel[(1,)](x, ratio, out)
    ctx.ratio = ratio
    ctx.out = out
    return out.sum()
    """
    assert of(body, "ratio out", "x: Tensor, ratio: Tensor | None", module) == {"ratio": "RECOMPUTE", "out": "SAVE"}


def test_results_of_one_elementwise_kernel_are_told_apart() -> None:
    source = """
    import chainer
    from chainer.backends import cuda
    class F(chainer.FunctionNode):
        def forward(self, inputs):
            x, = inputs
            self.hat, y = cuda.elementwise('T x', 'T hat, T y', 'hat = x; y = x', 'f')(x)
            self.number = x.dtype.type(2)
            return y,
        def backward(self, indexes, grads):
            use(self.hat, self.number)
            return grads
    """
    field = judged(source)["hat"]
    assert (field.cls.value, str(field.origin.value)) == ("RECOMPUTE", "intermediate")
    assert judged(source)["number"].cls.value == "SAFE"


def test_a_copy_that_is_changed_and_returned_is_the_output() -> None:
    source = """
    class Rectify:
        def forward(self, x):
            self.y = x.copy()
            self.y[x < 0.0] = 0.0
            return self.y

        def backward(self, grad):
            return grad * self.y
    """
    assert classes(source) == {"y": "SAVE"}


def test_a_recursive_call_is_no_dearer_than_the_rest_of_the_function() -> None:
    module = """
    def wrapped(t, deep=True):
        if deep:
            return wrapped(t.contiguous(), False)
        return t.view(-1)
    """
    assert of("ctx.w = wrapped(x)\nreturn x", "w", "x: Tensor", module) == {"w": "RECOMPUTE"}


def test_a_wrapper_that_bears_the_name_of_an_operator_is_not_recursive() -> None:
    module = """
    def pack(t):
        return torch.ops.mine.pack(t)
    """
    assert of("ctx.w = pack(x)\nreturn x", "w", "x: Tensor", module) == {"w": "SAVE"}


def test_a_subclass_of_tensor_says_what_its_attributes_are() -> None:
    module = """
    class Layout:
        pass

    class Sharded(torch.Tensor):
        _plan: Layout
        _local: Tensor
    """
    body = "ctx.plan = x._plan\nctx.local = x._local\nreturn x._local"
    assert of(body, "plan local", "x: 'Sharded'", module) == {"plan": "SAFE", "local": "RECOMPUTE"}


@pytest.mark.parametrize(
    "made", ["torch.cuda.ByteTensor(x.size())", "torch.cuda.FloatTensor(3, 4)", "torch.LongTensor(3)"]
)
def test_old_constructors_make_tensors(made: str) -> None:
    body = f"ctx.m = {made}\nelsewhere.fill(x, ctx.m)\nreturn x"
    assert of(body, "m", "x: Tensor", "import elsewhere") == {"m": "SAVE"}


def test_whoever_is_given_the_address_of_a_buffer_fills_it() -> None:
    body = "ctx.m = x.new(3)\nlaunch(args=[ctx.m.data_ptr(), x.data_ptr()])\nreturn x"
    assert of(body, "m", "x: Tensor", "from elsewhere import launch") == {"m": "SAVE"}


def test_an_input_beside_a_buffer_that_stands_in_for_it_is_not_filled() -> None:
    body = """
    whole = x
    if group is not None:
        whole = torch.empty(8, *x.shape[1:])
        torch.distributed.all_gather_into_tensor(whole, x, group=group)
    y = elsewhere.linear(whole)
    ctx.x, ctx.whole = x, whole
    return y
    """
    found = of(body, "x whole", "x: Tensor, group", "import elsewhere")
    assert found == {"x": "RECOMPUTE", "whole": "SAVE"}
