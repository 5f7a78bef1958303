"""CL210, CL211, CL212, CL214, CL217 and CL219: what is saved, and how it is read back."""

from __future__ import annotations

import pytest

from tests.checks.conftest import Find, function

PRODUCT = "x, w = ctx.saved_tensors\nreturn grad * w, grad * x"


EITHER = "x, w = ctx.saved_tensors\nreturn grad, grad"
ONE = "(x,) = ctx.saved_tensors\nreturn grad, grad"


# ---- CL210


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("if w is None:\n    ctx.save_for_backward(x)\nctx.save_for_backward(x, w)\nreturn x * w", 1),
        ("if w is None:\n    ctx.save_for_backward(x)\nif w is not None:\n    ctx.save_for_backward(x, w)\nreturn x * w", 0),
        ("if mode == 1:\n    ctx.save_for_backward(x)\nif not mode == 1:\n    ctx.save_for_backward(x, w)\nreturn x", 0),
        ("try:\n    ctx.save_for_backward(x)\nexcept TypeError:\n    ctx.save_for_backward(w)\nreturn x", 0),
        ("if w is None:\n    ctx.save_for_backward(x)\n    raise ValueError\nctx.save_for_backward(x, w)\nreturn x", 0),
        ("for p in x:\n    if p is w:\n        ctx.save_for_backward(x)\n        continue\n    ctx.save_for_backward(x, w)\nreturn x", 0),
    ],
    ids=["then fall through", "negated test", "negated comparison", "handler", "raises", "continues"],
)  # fmt: skip
def test_saves_that_one_run_reaches(find: Find, forward: str, expected: int) -> None:
    assert len(find(function(forward, PRODUCT, parameters="x, w, mode=1"), "CL210")) == expected


def test_a_helper_that_saves_counts(find: Find) -> None:
    source = "def keep(ctx, x):\n    ctx.save_for_backward(x)\n\n" + function(
        "keep(ctx, x)\nctx.save_for_backward(x, w)\nreturn x * w", PRODUCT
    )
    assert find(source, "CL210") == ["ctx.save_for_backward(x, w)"]


def test_a_helper_that_returns_early_does_not_end_forward(find: Find) -> None:
    source = (
        "def keep(ctx, x):\n    if x.ndim > 1:\n        ctx.save_for_backward(x)\n        return 1\n    return 0\n\n"
        + function("keep(ctx, x)\nctx.save_for_backward(x, w)\nreturn x * w", PRODUCT)
    )
    assert find(source, "CL210") == ["ctx.save_for_backward(x, w)"]


# ---- CL211


@pytest.mark.parametrize(
    ("forward", "backward", "expected"),
    [
        ("ctx.save_for_backward(*[x, w])\nreturn x * w", ONE, 1),
        ("kept = (x,) + (w,)\nctx.save_for_backward(*kept)\nreturn x * w", "a, b, c = ctx.saved_tensors\nreturn grad, grad", 1),
        ("ctx.save_for_backward(x, w)\nreturn x * w", "saved = ctx.saved_tensors\nx, w, y = saved\nreturn grad, grad", 1),
        ("ctx.save_for_backward(x, w)\nreturn x * w", "w = ctx.saved_tensors[2]\nreturn grad, grad * w", 1),
        ("ctx.save_for_backward(x, w)\nreturn x * w", "x = ctx.saved_tensors[-3]\nreturn grad, grad * x", 1),
        ("ctx.save_for_backward(x)\nreturn x * w", "x, y, *rest = ctx.saved_tensors\nreturn grad, grad", 1),
        ("ctx.save_for_backward(x, w)\nreturn x * w", "x, *rest = ctx.saved_tensors\nreturn grad, grad", 0),
        ("ctx.save_for_backward(*[t for t in (x, w) if t is not None])\nreturn x", ONE, 0),
        ("kept = [x]\nif w is not None:\n    kept.append(w)\nctx.save_for_backward(*kept)\nreturn x", EITHER, 0),
        ("if w is None:\n    ctx.save_for_backward(x)\nelse:\n    ctx.save_for_backward(x, w)\nreturn x", EITHER, 0),
        ("unseen.keep(ctx, x)\nctx.save_for_backward(x)\nreturn x", EITHER, 0),
        ("ctx.save_for_backward(x, w)\nreturn x", "return helper(*ctx.saved_tensors)", 0),
    ],
    ids=["starred list", "tuple sum", "through a name", "index", "negative index", "star needs more", "star takes the rest",
         "filtered", "grown in a branch", "one save fits", "handed to unseen code", "passed on"],
)  # fmt: skip
def test_counts(find: Find, forward: str, backward: str, expected: int) -> None:
    assert len(find("import unseen\n" + function(forward, backward), "CL211")) == expected


def test_what_setup_context_saves_is_what_backward_unpacks(find: Find) -> None:
    source = """
    class F(torch.autograd.Function):
        @staticmethod
        def forward(x, w):
            return x * w

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, w = inputs
            ctx.save_for_backward(x, w, output)

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad * w, grad * x
    """
    assert find(source, "CL211") == ["x, w = ctx.saved_tensors"]


def test_a_registered_operator_is_judged_too(find: Find) -> None:
    source = """
    @torch.library.custom_op("mine::mul", mutates_args=())
    def mul(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x * w

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, grad):
        x, w, out = ctx.saved_tensors
        return grad * w, grad * x

    mul.register_autograd(backward, setup_context=setup)
    """
    assert find(source, "CL211") == ["x, w, out = ctx.saved_tensors"]


# ---- CL212


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        ("x, 3", 1),
        ("x, (w,)", 1),
        ("x, w.shape[0]", 1),
        ("x, len(w)", 1),
        ("x, unseen.build(3)", 0),
        ("x, None", 0),
        ("x, *[]", 0),
        ("x, *(w, 2)", 1),
    ],
)
def test_host_values(find: Find, saved: str, expected: int) -> None:
    source = "import unseen\n" + function(f"ctx.save_for_backward({saved})\nreturn x * w", "return grad, grad")
    assert len(find(source, "CL212")) == expected


def test_what_is_no_dtensor_may_be_a_tensor(find: Find) -> None:
    forward = "if isinstance(x, DTensor):\n    x = x.to_local()\nctx.save_for_backward(x)\nreturn x * 2"
    source = "from torch.distributed.tensor import DTensor\n" + function(
        forward, "(x,) = ctx.saved_tensors\nreturn grad * x", parameters="x"
    )
    assert find(source, "CL212") == []


# ---- CL214


@pytest.mark.parametrize(
    ("saved", "backward", "expected"),
    [
        ("x, w", "x, *_ = ctx.saved_tensors\nreturn grad * x, None", 1),
        ("x, w", "saved = ctx.saved_tensors\nreturn grad * saved[0], None", 1),
        ("x, w", "saved = ctx.saved_tensors\nreturn combine(grad, saved), None", 0),
        ("x, w", "if ctx.flag:\n    x, w = ctx.saved_tensors\n    return w, None\nx, w = ctx.saved_tensors\nreturn x, None", 0),
        ("x, None", "x, w = ctx.saved_tensors\nreturn grad * x, None", 0),
        ("x, w", "return grad, grad", 2),
        ("x, w", "x, ctx.w = ctx.saved_tensors\nreturn grad * x, None", 0),
        ("x, w", "x, w = ctx.saved_tensors\nreturn grad * x, locals()['w']", 0),
        ("x, w", "_ = ctx.saved_tensors\nreturn grad, grad", 0),
        ("x, w", "x, _ = ctx.saved_tensors\nreturn grad * x, grad", 1),
    ],
    ids=["swallowed by a star", "by index of a name", "passed on", "one branch each", "None", "no unpacking",
         "into an attribute", "locals", "all for the check of versions", "one into an underscore"],
)  # fmt: skip
def test_saved_and_never_read(find: Find, saved: str, backward: str, expected: int) -> None:
    source = function(f"ctx.flag = True\nctx.save_for_backward({saved})\nreturn x * w", backward)
    assert len(find(source, "CL214")) == expected


def test_a_saved_host_value_holds_no_memory(find: Find) -> None:
    """Where `save_for_backward` takes it at all: under an engine of the project's own. In torch it is CL212's."""
    source = function(
        "ctx.save_for_backward(x.shape, w)\nreturn x * w", "shape, w = ctx.saved_tensors\nreturn grad, grad"
    )
    assert find(source, "CL214") == ["ctx.save_for_backward(x.shape, w)"] * 1
    source = source.replace("x.shape, w)", "x.shape, (1, 0))")
    assert find(source, "CL214") == []
    assert len(find(source, "CL212")) == 2


# ---- CL217


@pytest.mark.parametrize(
    ("backward", "expected"),
    [
        ("assert len(ctx.saved_tensors) == 2\nx, w = ctx.saved_tensors\nreturn grad * w, grad * x", 1),
        ("def inner():\n    return ctx.saved_tensors\nx, w = inner()\nreturn grad * w, grad * x", 0),
        ("if grad is None:\n    w = ctx.saved_tensors[1]\n    return w, w\nx, w = ctx.saved_tensors\nreturn grad * w, grad * x", 0),
        ("pick = lambda i: ctx.saved_tensors[i]\nreturn grad * pick(1), grad", 0),
        ("return tuple(grad * ctx.saved_tensors[i] for i in (1, 0))", 1),
        ("i = 0\nwhile i < 2:\n    grad = grad * ctx.saved_tensors[i]\n    i += 1\nreturn grad, grad", 1),
    ],
    ids=["asserted first", "nested function", "early return", "lambda", "comprehension", "while"],
)  # fmt: skip
def test_read_twice(find: Find, backward: str, expected: int) -> None:
    assert len(find(function("ctx.save_for_backward(x, w)\nreturn x * w", backward), "CL217")) == expected


def test_a_helper_that_reads_them_again_is_found(find: Find) -> None:
    source = (
        "def last(ctx):\n    return ctx.saved_tensors[-1]\n\n"
        + function("ctx.save_for_backward(x, w)\nreturn x * w", "x = ctx.saved_tensors[0]\nreturn grad * last(ctx), grad * x")
    )  # fmt: skip
    assert find(source, "CL217") != []


def test_jvp_reads_what_no_hook_unpacks(find: Find) -> None:
    source = """
    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            ctx.save_for_forward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad * w, grad * x

        @staticmethod
        def jvp(ctx, tx, tw):
            x = ctx.saved_tensors[0]
            w = ctx.saved_tensors[1]
            return tx * w + tw * x
    """
    assert find(source, "CL217") == []


def test_a_backward_that_two_types_share_is_reported_once(find: Find) -> None:
    source = """
    class Base:
        @staticmethod
        def pull(ctx, grad):
            x = ctx.saved_tensors[0]
            w = ctx.saved_tensors[1]
            return grad * w, grad * x

    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, grad):
            return Base.pull(ctx, grad)

    class G(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, grad):
            return Base.pull(ctx, grad)
    """
    assert find(source, "CL217") == ["w = ctx.saved_tensors[1]"]


# ---- CL219


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("ctx.save_for_backward(x.data, w)\nreturn x * w", 1),
        ("ctx.save_for_backward(*[t.data for t in (x, w)])\nreturn x * w", 1),
        ("ctx.save_for_backward(x.data.clone(), w)\nreturn x * w", 0),
        ("ctx.save_for_backward(x.data * 2, w)\nreturn x * w", 0),
        ("y = torch.empty_like(x)\ny.copy_(x.data)\nctx.save_for_backward(y, w)\nreturn x * w", 0),
        ("ctx.kept = x.data\nctx.save_for_backward(x, w)\nreturn x * w", 1),
        ("ctx.rows = x.data.shape[0]\nctx.save_for_backward(x, w)\nreturn x * w", 0),
        ("s = blocks.product(x, w)\nctx.save_for_backward(s.data, w)\nreturn s.data * 1", 0),
    ],
)
def test_through_data(find: Find, forward: str, expected: int) -> None:
    backward = "x, w = ctx.saved_tensors\nreturn grad * w, grad * x * getattr(ctx, 'kept', 1)"
    assert len(find("import blocks\n\n" + function(forward, backward), "CL219")) == expected
