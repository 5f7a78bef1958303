"""CL213, CL215 and CL218: what backward returns, and what it does to the gradient it is given."""

from __future__ import annotations

import pytest

from tests.checks.conftest import Find, function

# ---- CL213


@pytest.mark.parametrize(
    ("parameters", "backward", "expected"),
    [
        ("x, w", "return (grad,) + (None,) * 7", 0),
        ("x, w, k", "return (grad,) + (None,) * 1", 1),
        ("x, w", "return (grad, *[None] * 3)", 0),
        ("x, w, k", "return grad, None", 1),
        ("x, w, k=1", "return grad, None", 0),
        ("x, w, k=1", "return grad", 0),
        ("x, *rest", "return grad, None", 0),
        ("x, w", "return gradients(grad)", 0),
        ("x, w", "return unseen.gradients(grad)", 0),
        ("x, w", "grads = [grad, None]\nif ctx.flag:\n    grads.append(None)\nreturn tuple(grads)", 0),
        ("x, w, k", "grads = [grad]\ngrads += [None]\nreturn tuple(grads)", 1),
        ("x", "return grad * 2, grad if ctx.needs_input_grad[0] else None", 0),
        ("x", "return (grad * 2, grad * 3) if ctx.flag else (grad * 2,)", 0),
        ("x, w", "return grad * 2", 1),
        ("x, w", "return grad.clone()", 1),
        ("x, w", "return None", 0),
        ("x, w", "raise NotImplementedError", 0),
    ],
)
def test_counts(find: Find, parameters: str, backward: str, expected: int) -> None:
    forward = "ctx.flag = x.ndim > 1\nreturn x * 2"
    source = "import unseen\n\ndef gradients(grad):\n    return grad, None\n\n" + function(
        forward, backward, parameters=parameters
    )
    assert len(find(source, "CL213")) == expected


@pytest.mark.parametrize(
    ("call", "expected"), [("F.apply(x, 1)", 0), ("F.apply(x, 1, 2)", 1), ("F.apply(x, *rest)", 0)]
)
def test_a_default_counts_for_those_who_pass_it(find: Find, call: str, expected: int) -> None:
    source = function("return x * w * k", "return grad, None", parameters="x, w, k=1")
    source += f"\n\ndef use(x, *rest):\n    return {call}\n"
    assert len(find(source, "CL213")) == expected


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("i = x.argmax(-1)\nctx.mark_non_differentiable(i)\nreturn i", 0),
        ("i, j = x.argmax(-1), x.argmin(-1)\nctx.mark_non_differentiable(i, j)\nreturn i, j", 0),
        ("v, i = x.max(-1)\nctx.mark_non_differentiable(i)\nreturn v, i", 1),
        ("m = x.amax(-1)\nreturn m", 1),
        ("i = x.argmax(-1)\nreturn i", 0),
        ("i = torch.zeros(4, dtype=torch.int32).fill_(1)\nmask = i == 0\ni[mask] = 2\nreturn i, mask", 0),
        ("i = torch.zeros(4)\nif w is None:\n    i = i.int()\nreturn i", 1),
        ("return x.sqrt(), x.argmax(-1)", 1),
    ],
    ids=["marked", "all marked", "one of two marked", "not marked", "integers", "integers and a mask", "on one path",
         "a distance and an index"],
)  # fmt: skip
def test_where_no_output_is_differentiable_backward_never_runs(find: Find, forward: str, expected: int) -> None:
    assert len(find(function(forward, "return (None,)", parameters="x, w"), "CL213")) == expected


@pytest.mark.parametrize(("backward", "expected"), [("return grad, None", 0), ("return (grad,)", 1)])
def test_a_class_method_beside_setup_context_has_no_receiver(find: Find, backward: str, expected: int) -> None:
    source = f"""
    class F(torch.autograd.Function):
        @classmethod
        def forward(cls, x, w):
            return x * 2

        @classmethod
        def setup_context(cls, ctx, inputs, output):
            pass

        @classmethod
        def backward(cls, ctx, grad):
            {backward}
    """
    assert len(find(source, "CL213")) == expected


def test_a_static_forward_may_be_given_the_class(find: Find) -> None:
    source = """
    class Base(torch.autograd.Function):
        @staticmethod
        def forward(cls, ctx, x, w):
            joined = x @ w
            ctx.save_for_backward(joined)
            return joined * 2 + torch.relu(joined)

        @staticmethod
        def backward(ctx, grad):
            (joined,) = ctx.saved_tensors
            return grad @ joined, grad
    """
    assert find(source, "CL2", "CL302") == []


def test_a_class_constant_gives_the_length(find: Find) -> None:
    source = """
    NOTHING = (None,) * 2

    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, a, b, c):
            return x * a

        @staticmethod
        def backward(ctx, grad):
            return (grad, *NOTHING)
    """
    assert find(source, "CL213") == ["return (grad, *NOTHING)"]


def test_jvp_has_its_own_count(find: Find) -> None:
    source = """
    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            return x * w

        @staticmethod
        def backward(ctx, grad):
            return grad, grad

        @staticmethod
        def jvp(ctx, tx, tw):
            return tx * tw
    """
    assert find(source, "CL213") == []


def test_forward_without_a_receiver_has_one_input_more(find: Find) -> None:
    source = """
    class F(torch.autograd.Function):
        @staticmethod
        def forward(x, w):
            return x * w

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad * w, grad * x
    """
    assert find(source, "CL213") == []


# ---- CL218


@pytest.mark.parametrize(
    ("backward", "expected"),
    [
        ("grad.reshape(-1).mul_(2)\nreturn grad, None", 1),
        ("flat = grad.transpose(0, 1)\nflat += 1\nreturn grad, None", 1),
        ("torch.mul(grad, 2, out=grad)\nreturn grad, None", 1),
        ("torch.mul(grad, 2, out=torch.empty_like(grad))\nreturn grad, None", 0),
        ("torch.distributed.all_reduce(grad)\nreturn grad, None", 0),
        ("grad = grad.contiguous()\ngrad.mul_(2)\nreturn grad, None", 1),
        ("if not grad.is_contiguous():\n    grad = grad.contiguous()\ngrad.mul_(2)\nreturn grad, None", 1),
        ("grad = grad.contiguous().to(torch.float32)\ngrad.mul_(2)\nreturn grad, None", 0),
        ("grad = grad.contiguous().clone()\ngrad.mul_(2)\nreturn grad, None", 0),
        ("grad = grad.to(torch.float32)\ngrad.mul_(2)\nreturn grad, None", 0),
        ("out = torch.zeros_like(grad)\nout.copy_(grad)\nreturn out, None", 0),
        ("if ctx.flag:\n    grad = grad * 2\nelse:\n    grad.mul_(2)\nreturn grad, None", 1),
        ("scale(grad)\nreturn grad, None", 1),
        ("grad.requires_grad_(False)\nreturn grad, None", 0),
        ("(first, second) = grad.chunk(2)\nfirst.mul_(2)\nreturn grad, None", 1),
        ("grad[0] = 0\ngrad.mul_(2)\ngrad += 1\nreturn grad, None", 1),
        ("both(grad)\nreturn grad, None", 1),
    ],
)
def test_edits_of_the_gradient(find: Find, backward: str, expected: int) -> None:
    helpers = "def scale(t):\n    t.mul_(2)\n\ndef both(t):\n    t.mul_(2)\n    t.add_(1)\n\n"
    source = helpers + function("ctx.flag = x.ndim > 1\nreturn x * 2", backward)
    assert len(find(source, "CL218")) == expected


def test_two_gradients_that_are_edited_are_two_findings(find: Find) -> None:
    source = """
    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            return x * 2, w * 2

        @staticmethod
        def backward(ctx, gx, gw):
            gx.mul_(2)
            gw.mul_(2)
            gx.add_(1)
            return gx, gw
    """
    assert find(source, "CL218") == ["gx.mul_(2)", "gw.mul_(2)"]


@pytest.mark.parametrize(("method", "expected"), [("backward", 1), ("jvp", 0)])
def test_a_tangent_may_be_changed_where_forward_works_in_place(find: Find, method: str, expected: int) -> None:
    source = f"""
    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.exp_()

        @staticmethod
        def {method}(ctx, given):
            given.mul_(2)
            return given

        @staticmethod
        def vjp(ctx, grad):
            return grad * 2
    """
    assert len(find(source, "CL218")) == expected


@pytest.mark.parametrize(("target", "expected"), [("out", 0), ("grad", 1)])
def test_a_kernel_that_stores_to_it(find: Find, target: str, expected: int) -> None:
    source = """
    import triton
    import triton.language as tl

    @triton.jit
    def scale(source, sink, BLOCK: tl.constexpr):
        at = sink + tl.arange(0, BLOCK)
        tl.store(at, tl.load(source + tl.arange(0, BLOCK)) * 2)

    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            out = torch.empty_like(grad)
            scale[(1,)](grad, TARGET, BLOCK=128)
            return TARGET
    """.replace("TARGET", target)
    assert len(find(source, "CL218")) == expected


def test_whose_gradient_it_is(say: Find) -> None:
    """A layer is called by other code of the project: no engine is there."""
    layer = """
    class Scale:
        def forward(self, x):
            self.y = torch.exp(x)
            return self.y

        def backward(self, grad):
            grad *= self.y
            return grad
    """
    (said,) = say(layer, "CL218")
    assert "belongs to the caller, who may hand" in said
    (said,) = say(function("return x * w", "grad.mul_(2)\nreturn grad, None"), "CL218")
    assert "belongs to the engine, which may hand" in said


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("", ""), 0),
        (("def __mul__", "def __imul__"), 1),
        (("func.backward(out.grad)", "func.backward(out.grad.data)"), 1),
        (("self.grad = Variable(", "self.grad = ones("), 1),
    ],
    ids=["bound anew", "in place", "arrays", "who knows what"],
)
def test_gradients_of_a_class_of_the_projects_own(find: Find, change: tuple[str, str], expected: int) -> None:
    engine = """
    class Variable:
        def __init__(self, data):
            self.data, self.grad = data, None

        def __mul__(self, other):
            return Mul()(self, other)

        def backward(self):
            self.grad = Variable(ones_like(self.data))
            for func, out in self.walk():
                for x, g in zip(func.inputs, func.backward(out.grad)):
                    x.grad = g

    class Function:
        def __call__(self, *inputs):
            self.inputs = inputs
            return Variable(self.forward(*[x.data for x in inputs]))
    """
    source = """
    from engine import Function

    class Mean(Function):
        def forward(self, x):
            return x.mean()

        def backward(self, grad):
            (x,) = self.inputs
            grad *= 1 / x.size
            return grad
    """
    assert len(find(source, "CL218", other={"engine.py": engine.replace(*change) if change[0] else engine})) == expected


def test_the_gradients_of_several_outputs(find: Find) -> None:
    source = """
    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, *grads):
            first = grads[0]
            first += grads[1]
            return first
    """
    assert find(source, "CL218") == ["first += grads[1]"]


# ---- CL215


@pytest.mark.parametrize(
    ("forward", "decorator", "expected"),
    [
        ("y = x.exp()\nctx.save_for_backward(y * 2)\nreturn y", "", 1),
        (
            "y = x.exp()\nctx.save_for_backward(y * 2)\nreturn y",
            "@torch.autograd.function.once_differentiable\n    ",
            0,
        ),
        ("y = x.exp()\nctx.save_for_backward(x > 0)\nreturn y", "", 0),
        ("y = x.exp()\nctx.save_for_backward(torch.rand_like(x))\nreturn y", "", 0),
        ("y = x.exp()\nctx.save_for_backward(x, w, y)\nreturn y", "", 0),
        ("y = x.exp()\nctx.save_for_backward(y.view(-1))\nreturn y", "", 0),
    ],
)
def test_double_backward(find: Find, forward: str, decorator: str, expected: int) -> None:
    source = function(forward, "saved = ctx.saved_tensors\nreturn grad * saved[0], None")
    source = source.replace("def backward", f"{decorator}def backward").replace(
        "@staticmethod\n    @torch", "@staticmethod\n    @torch"
    )
    assert len(find(source, "CL215")) == expected
