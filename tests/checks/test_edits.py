"""CL209 and CL220: in-place edits of what was kept, and of inputs."""

from __future__ import annotations

import pytest

from tests.checks.conftest import Find, function

BACKWARD = "(y,) = ctx.saved_tensors\nreturn grad * y, None"


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("y = x.exp()\nctx.save_for_backward(y)\ny[0].zero_()\nreturn y", 1),
        ("y = x.exp()\nctx.save_for_backward(y)\ny[0] = 0\nreturn y", 1),
        ("y = x.exp()\nctx.save_for_backward(y)\ntorch.distributed.all_reduce(y)\nreturn y", 1),
        ("y = x.exp()\nctx.save_for_backward(y)\nedit(y)\nreturn y", 1),
        ("y = x.exp()\nctx.save_for_backward(y.clone())\ny.sub_(1)\nreturn y", 0),
        ("y = x.exp()\nctx.save_for_backward(y)\ny = y - 1\ny.mul_(2)\nreturn y", 0),
        ("y = x.exp()\nctx.save_for_backward(y)\nz = y.contiguous()\nz.mul_(2)\nreturn z", 0),
        ("y = x.exp().contiguous()\nctx.save_for_backward(y)\ny.mul_(2)\nreturn y", 1),
        ("y = torch.empty_like(x)\nctx.save_for_backward(y)\ntorch.exp(x, out=y)\nreturn y", 0),
        ("y = torch.empty_like(x)\ntorch.exp(x, out=y)\nctx.save_for_backward(y)\ny.sub_(1)\nreturn y", 1),
        ("if w is None:\n    ctx.save_for_backward(x)\n    return x\ny = x.exp()\nctx.save_for_backward(y)\nreturn y", 0),
        ("y = x.exp()\nif w is None:\n    ctx.save_for_backward(y)\nelse:\n    y.sub_(1)\nreturn y", 0),
        ("ctx.save_for_backward(x)\nctx.mark_dirty(x)\nx.exp_()\nreturn x", 0),
        ("y = x.exp()\nctx.save_for_backward(y)\ny.data.sub_(1)\nreturn y", 1),
        ("y, order = torch.sort(x)\nctx.save_for_backward(order)\ny.mul_(2)\nreturn y", 0),
    ],
    ids=["view", "item", "collective", "helper", "a copy is saved", "bound anew", "maybe a copy", "may be a copy but the same name",
         "filled after", "edited after filling", "another path", "other arm", "marked", "through data", "another result"],
)  # fmt: skip
def test_edits_after_the_save(find: Find, forward: str, expected: int) -> None:
    source = "def edit(t):\n    t.sub_(1)\n\n" + function(forward, BACKWARD)
    assert len(find(source, "CL209")) == expected


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("ctx.y = x.exp()\nctx.y.sub_(1)\nreturn x", 0),
        ("y = x.exp()\nctx.y = y\ny.sub_(1)\nreturn y", 1),
        ("y = x.exp()\nctx.y = y\nctx.y = y.clone()\ny.sub_(1)\nreturn y", 0),
        ("y = x.exp()\nctx.unread = y\ny.sub_(1)\nreturn y", 0),
    ],
    ids=["through the field", "through the name", "set again", "never read"],
)
def test_edits_of_what_is_kept(find: Find, forward: str, expected: int) -> None:
    assert len(find(function(forward, "return grad * ctx.y, None"), "CL209")) == expected


@pytest.mark.parametrize(("target", "expected"), [("kept", 1), ("out", 0)])
def test_storages_are_the_same_in_both_passes(find: Find, target: str, expected: int) -> None:
    """That ``n`` is a number shows only afterwards: until then ``n * 2`` counts as one storage more."""
    source = """
    import triton
    import triton.language as tl

    @triton.jit
    def double(sink):
        tl.store(sink + tl.arange(0, 8), tl.load(sink + tl.arange(0, 8)) * 2)

    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, n):
            ctx.size = n * 2
            y = x * 2
            kept = torch.exp(x)
            ctx.save_for_backward(x, kept)
            return y.view(range(n))

        @staticmethod
        def backward(ctx, grad):
            x, kept = ctx.saved_tensors
            out = torch.empty_like(x)
            double[(1,)](TARGET)
            return grad * kept * x * out / ctx.size, None
    """.replace("TARGET", target)
    assert len(find(source, "CL209")) == expected


def test_a_kernel_that_stores_to_what_was_saved(find: Find) -> None:
    source = """
    import triton
    import triton.language as tl

    @triton.jit
    def double(pointer, BLOCK: tl.constexpr):
        block = tl.make_block_ptr(base=pointer, shape=(BLOCK,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))
        tl.store(block, tl.load(block) * 2)

    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            double[(1,)](y, BLOCK=128)
            return y

        @staticmethod
        def backward(ctx, grad):
            (y,) = ctx.saved_tensors
            return grad * y
    """
    assert find(source, "CL209") == ["double[(1,)](y, BLOCK=128)"]


def test_a_layer_that_edits_its_input_after_keeping_it(find: Find) -> None:
    source = """
    class Layer:
        def forward(self, x):
            self.x = x
            x += 1
            return x * x

        def backward(self, grad):
            return 2 * self.x * grad
    """
    assert find(source, "CL209") == ["x += 1"]


KERNEL = """
import triton
import triton.language as tl

@triton.jit
def double(source, sink, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(sink + at, tl.load(source + at) * 2)

"""


@pytest.mark.parametrize(
    ("forward", "backward", "expected"),
    [
        ("ctx.save_for_backward(x)\nreturn x * x", "(x,) = ctx.saved_tensors\nx.mul_(2)\nreturn grad * x, None", 1),
        ("ctx.save_for_backward(x)\nreturn x * x", "(x,) = ctx.saved_tensors\nx.mul_(2)\nx.add_(grad)\nreturn x, None", 1),
        ("ctx.save_for_backward(x)\nreturn x * x", "(x,) = ctx.saved_tensors\nx = x.clone()\nx.mul_(2)\nreturn grad * x, None", 0),
        ("ctx.save_for_backward(x.clone())\nreturn x * x", "(x,) = ctx.saved_tensors\nx.mul_(2)\nreturn grad * x, None", 0),
        ("y = x.exp()\nctx.save_for_backward(y)\nreturn y", "(y,) = ctx.saved_tensors\ny.mul_(grad)\nreturn y, None", 0),
        ("y = x.exp()\nctx.save_for_backward(y)\nreturn y", "(y,) = ctx.saved_tensors\ndouble[(1,)](grad, y, 8)\nreturn y, None", 1),
        ("y = x.exp()\nctx.save_for_backward(y)\nreturn y",
         "(y,) = ctx.saved_tensors\ndouble[(1,)](y, grad.clone(), 8)\nreturn grad, None", 0),
    ],
    ids=["an input", "twice is once", "a copy", "a copy was saved", "an intermediate: the engine refuses", "by a kernel", "only read"],
)  # fmt: skip
def test_edits_of_what_was_saved_in_backward(find: Find, forward: str, backward: str, expected: int) -> None:
    assert len(find(KERNEL + function(forward, backward), "CL209")) == expected


def test_a_long_helper_whose_kernel_stores_to_two_saved_tensors_is_one_finding(find: Find) -> None:
    steps = "".join(f"    rows = rows + {number} - {number}\n" for number in range(30))
    source = (
        "import triton\nimport triton.language as tl\n\n@triton.jit\ndef pull(g, a, b, BLOCK: tl.constexpr):\n"
        "    at = tl.arange(0, BLOCK)\n    tl.store(a + at, tl.load(g + at) * tl.load(b + at))\n    tl.store(b + at, tl.load(g + at))\n\n"
        f"def gradients(g, a, b):\n    rows = g.shape[0]\n{steps}    pull[(rows,)](g, a, b, BLOCK=8)\n    return a, b\n\n"
        + function(
            "y = x * w\nctx.save_for_backward(x, w)\nreturn y", "x, w = ctx.saved_tensors\nreturn gradients(grad, x, w)"
        )
    )
    assert find(source, "CL209") == ["pull[(rows,)](g, a, b, BLOCK=8)"]


# ---- CL220


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("double[(1,)](x, x, 8)\nreturn x", 1),
        ("y = x.view(-1)\ndouble[(1,)](w, y, 8)\nreturn x", 1),
        ("y = torch.empty_like(x)\ndouble[(1,)](x, y, 8)\nreturn y", 0),
        ("double[(1,)](x, x, 8)\nctx.mark_dirty(x)\nreturn x", 0),
        ("double[(1,)](x, x, 8)\nreturn x * 1", 0),
        ("double[(1,)](x, x.contiguous(), 8)\nreturn x", 0),
    ],
    ids=["itself", "through a view", "a new tensor", "marked", "not returned", "maybe a copy"],
)
def test_inputs_that_a_kernel_stores_to(find: Find, forward: str, expected: int) -> None:
    assert len(find(KERNEL + function(forward, "return grad, None"), "CL220")) == expected


@pytest.mark.parametrize(
    ("forward", "backward", "expected"),
    [
        ("x += 1\nreturn x", "return grad, None", 1),
        ("x[0] = 0\nreturn x * 1, x", "return grad, None", 1),
        ("torch.add(x, 1, out=x)\nreturn x", "return grad, None", 1),
        ("edit(x)\nreturn x", "return grad, None", 1),
        ("x.add_(1)\nreturn x.view(-1)", "return grad.view(2, 2), None", 1),
        ("x.add_(1)\nctx.mark_dirty(*[x])\nreturn x", "return grad, None", 0),
        ("x.add_(1)\nreturn x * 2", "return grad, None", 0),
        ("w.add_(1)\nreturn x * 1, w", "return grad, None", 0),
        ("x = x.contiguous()\nx.add_(1)\nreturn x", "return grad, None", 0),
        ("if w is None:\n    return x\ny = x.clone()\ny.add_(1)\nreturn y", "return grad, None", 0),
        ("if w is None:\n    x.add_(1)\n    return x.sum()\nreturn x", "return grad, None", 0),
    ],
    ids=["augmented", "item", "out", "helper", "a view is returned", "marked by star", "not returned", "no gradient", "maybe a copy",
         "a copy", "returned on another path"],
)  # fmt: skip
def test_inputs_changed_and_returned(find: Find, forward: str, backward: str, expected: int) -> None:
    source = "def edit(t):\n    t.add_(1)\n\n" + function(forward, backward)
    assert len(find(source, "CL220")) == expected
