"""What is kept on the receiver without an assignment in forward: by a base's ``__call__``, in containers, by a framework."""

from __future__ import annotations

import pytest

from tests.infer.judging import classes, judged

CALL = """
class Node:
    def __call__(self, *inputs):
        values = [v.data for v in inputs]
        result = self.forward(*values)
        self.count = len(inputs)
        if Settings.enable_backprop:
            self.inputs = inputs
            self.result = result
        return result

    def forward(self, x):
        raise NotImplementedError

    def backward(self, grad):
        raise NotImplementedError
"""


def test_a_base_that_keeps_the_inputs_around_forward() -> None:
    source = (
        CALL
        + """
class Times(Node):
    def forward(self, x, y):
        return x * y

    def backward(self, grad):
        x, y = self.inputs[0].data, self.inputs[1].data
        return grad * y, grad * x
"""
    )
    assert classes(source, type_name="Times") == {"inputs": "RECOMPUTE"}


def test_a_base_that_keeps_the_output_around_forward() -> None:
    source = (
        CALL
        + """
class Exp(Node):
    def forward(self, x):
        return x.exp()

    def backward(self, grad):
        return grad * self.result * self.count
"""
    )
    found = judged(source, type_name="Exp")
    assert {name: str(f.cls.value) for name, f in found.items()} == {"result": "SAVE", "count": "SAFE"}
    assert found["result"].rule == "CL104"


def test_forward_is_judged_by_itself_whatever_calls_it() -> None:
    source = (
        CALL
        + """
class Power(Node):
    def __init__(self, c):
        self.c = c

    def forward(self, x):
        self.shape = x.shape
        self.half = x * 0.5
        return x ** self.c

    def backward(self, grad):
        return use(grad, self.shape, self.half)
"""
    )
    assert classes(source, type_name="Power") == {"shape": "SAFE", "half": "RECOMPUTE"}


def test_a_call_that_keeps_nothing_changes_nothing() -> None:
    source = """
    class Layer:
        def __call__(self, x):
            return self.forward(x)

        def forward(self, x):
            self.x = x
            return x * 2

        def backward(self, grad):
            return grad * self.x
    """
    assert classes(source) == {"x": "RECOMPUTE"}


CONTAINERS = """
class Base:
    def __init__(self):
        self.held = {made}

class Layer(Base):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        {put}
        return x * 2

    def backward(self, grad):
        return grad * {read}
"""


@pytest.mark.parametrize(
    ("made", "put", "read", "cls"),
    [
        ("[]", "self.held.append(x)", "self.held[0]", "RECOMPUTE"),
        ("[]", "self.held.extend([x, x * 2])", "self.held[1]", "RECOMPUTE"),
        ("{}", "self.held['x'] = torch.softmax(x, -1)", "self.held['x']", "SAVE"),
        ("{}", "self.held.update(y=torch.rand_like(x))", "self.held['y']", "SAVE"),
        ("{'x': []}", "self.held['x'].append(x.exp())", "self.held['x'][0]", "RECOMPUTE"),
        ("[]", "held = self.held\n        held.append(x)", "self.held[0]", "RECOMPUTE"),
        ("{}", "self.held['n'] = x.shape[0]", "self.held['n']", "SAFE"),
    ],
)
def test_what_forward_puts_into_a_container_of_the_constructor(made: str, put: str, read: str, cls: str) -> None:
    source = CONTAINERS.replace("{made}", made).replace("{put}", put).replace("{read}", read)
    found = judged(source, type_name="Layer")
    assert {name: str(field.cls.value) for name, field in found.items()} == {"held": cls}
    assert not found["held"].persistent
    assert found["held"].rule == (None if cls == "SAFE" else "CL105" if "rand" in put else "CL106")


def test_a_container_that_backward_does_not_read_is_no_field() -> None:
    source = CONTAINERS.replace("{made}", "[]").replace("{put}", "self.held.append(x)").replace("{read}", "2")
    assert judged(source, type_name="Layer") == {}


def test_parameters_that_forward_makes_the_first_time_outlive_the_step() -> None:
    source = """
    class Layer:
        def __init__(self, make):
            self.make = make
            self.values = {"w": None}
            self.is_init = False

        def forward(self, x):
            if not self.is_init:
                self.values["w"] = self.make(4, 4)
                self.is_init = True
            return x @ self.values["w"]

        def backward(self, grad):
            return grad @ self.values["w"].T
    """
    found = judged(source)["values"]
    assert (found.cls.value, found.persistent, found.rule) == ("SAVE", True, "CL107")


OWN = """
class Context:
    kept: tuple = ()

    def save_for_backward(self, *values):
        self.kept = values

class Operation:
    @classmethod
    def apply(cls, *values):
        return cls.forward(Context(), *values)

class Scale(Operation):
    @staticmethod
    def forward(ctx: Context, x: Tensor, by: float):
        ctx.save_for_backward(x, by)
        return x * by

    @staticmethod
    def backward(ctx: Context, grad):
        x, by = ctx.kept
        return grad * by, (grad * x).sum()
"""


def test_a_context_of_a_framework_of_its_own_is_read_by_its_own_name() -> None:
    found = judged(OWN, type_name="Scale")
    assert {n: (f.cls.value, f.read, f.registered) for n, f in found.items()} == {
        "x": ("RECOMPUTE", True, True),
        "by": ("SAFE", True, True),
    }


def test_a_receiver_that_backward_hands_to_another_function_is_read_there() -> None:
    source = """
    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, outer, grad):
            return grad * outer.factor

        @staticmethod
        def backward(ctx, grad):
            return None, grad

    class Outer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.factor = x * 2
            return x

        @staticmethod
        def backward(ctx, grad):
            return Inner.apply(ctx, grad)
    """
    assert judged(source, type_name="Outer")["factor"].read


@pytest.mark.parametrize(
    "imported", ["from torch.autograd.function import Function", "from torch.autograd import Function"]
)
def test_a_base_spelled_out_in_full_beats_one_that_ends_alike(imported: str) -> None:
    source = f"""
    {imported}

    class F(Function):
        @staticmethod
        def forward(ctx, first, second, many):
            ctx.many = many
            return first * second

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.many, None, None

    def run(x: Tensor, y: Tensor):
        return F.apply(x, y, 3)
    """
    assert classes(source) == {"many": "SAFE"}


def test_switches_of_backward_are_no_live_inputs() -> None:
    source = """
    class Attention:
        def forward(self, q, k):
            self.q, self.k = q, k
            return q @ k

        def backward(self, grad, keep_grads=True):
            return grad @ self.k, grad @ self.q
    """
    assert classes(source) == {"q": "RECOMPUTE", "k": "RECOMPUTE"}


def test_a_function_that_unseen_code_calls_back_keeps_things_too() -> None:
    source = """
    import extension

    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor):
            ctx.parts = [None] * 4

            def each(part, number):
                part = part.data
                ctx.parts[number] = part

            return extension.run(x, each)

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.parts[0]
    """
    assert classes(source) == {"parts": "SAVE"}
