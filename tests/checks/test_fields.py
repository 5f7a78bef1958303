"""CL107, CL108, CL109, CL111, CL201 and CL203: where a value lives, who reads it, on which paths it is set."""

from __future__ import annotations

import textwrap

import pytest

from tests.checks.conftest import Find, function

# ---- CL104


@pytest.mark.parametrize(
    ("kept", "cycle"), [("y", True), ("y.view(-1)", True), ("y.detach()", False), ("y.detach().view(-1)", False)]
)
def test_an_output_without_its_history_is_no_cycle(say: Find, kept: str, cycle: bool) -> None:
    source = function(f"y = x @ x\nctx.y = {kept}\nreturn y", "return grad * ctx.y, None")
    (message,) = say(source, "CL104")
    assert ("cycle" in message) is cycle


# ---- CL107


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("if self.table is None:\n    self.table = self.packed * self.scale", 1),
        ("if not self.ready:\n    self.table = self.packed * self.scale\n    self.ready = True", 1),
        ("self.table = self.packed * self.scale", 0),
        ("if self.width is None:\n    self.width = x.shape[-1]", 0),
    ],
    ids=["guarded", "flagged", "set every time", "a host value"],
)
def test_what_outlives_the_step(find: Find, forward: str, expected: int) -> None:
    source = f"""
class Layer:
    def __init__(self, packed, scale):
        self.packed, self.scale = packed, scale
        self.table, self.ready, self.width = None, False, None

    def forward(self, x):
{textwrap.indent(forward, " " * 8)}
        return x @ self.table.t() / (self.width or 1)

    def backward(self, grad, x):
        return (grad @ self.table / (self.width or 1),)
"""
    assert len(find(source, "CL107")) == expected


# ---- CL108


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("out = WORK[:4]\nout.copy_(x)\nctx.save_for_backward(out)\nreturn out * 1", 1),
        ("out = WORK.view(-1)[: x.numel()]\nout[0] = 1\nctx.save_for_backward(out)\nreturn out * 1", 1),
        ("ctx.save_for_backward(WORK[:4] * 1)\nWORK.zero_()\nreturn x * 1", 0),
        ("ctx.save_for_backward(WORK[:4])\nreturn x * 1", 0),
        ("out = TABLE[0]\nout.copy_(x)\nctx.save_for_backward(out)\nreturn out * 1", 1),
    ],
    ids=["a slice", "a view", "a copy", "never written", "in a list"],
)
def test_shared_buffers(find: Find, forward: str, expected: int) -> None:
    head = "WORK = torch.empty(1024)\nTABLE = {}\nTABLE[0] = torch.empty(4)\n\n"
    if "TABLE" in forward:
        forward = forward.replace("out = TABLE[0]", "TABLE[0] = torch.empty(4)\nout = TABLE[0]")
    backward = "(out,) = ctx.saved_tensors\nreturn grad * out, None"
    assert len(find(head + function(forward, backward), "CL108")) == expected


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("t = table(x.shape[0])", 0),
        ("t = table(x.shape[0])\ntorch.exp(x, out=t)", 1),
        ("t = table(x.shape[0])\nt.copy_(x)", 1),
        ("t = table(x.shape[0]) * 1\nt.copy_(x)", 0),
    ],
    ids=["only looked up", "written over", "copied into", "a copy of it"],
)
def test_a_tensor_from_a_table_is_a_workspace_once_forward_writes_into_it(find: Find, use: str, expected: int) -> None:
    head = (
        "TABLE = {}\n\ndef table(n):\n    if n not in TABLE:\n        TABLE[n] = torch.ones(n)\n    return TABLE[n]\n\n"
    )
    forward = use + "\nctx.save_for_backward(t)\nreturn x * t"
    backward = "(t,) = ctx.saved_tensors\nreturn grad * t"
    assert len(find(head + function(forward, backward, parameters="x: torch.Tensor"), "CL108")) == expected


# ---- CL109


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("ctx.pull = [lambda g: g * x]\nreturn x * x", 1),
        ("h = x.exp()\nctx.pull = functools.partial(torch.mul, h)\nreturn x * x", 1),
        ("def pull(g, factor=x.shape[0]):\n    return g * factor\nctx.pull = pull\nreturn x * x", 0),
        ("ctx.pull = torch.sigmoid\nreturn x * x", 0),
        ("y = x * x\nctx.pull = lambda g: g * y\nreturn y", 0),
        ("y = x * x\ny.register_hook(lambda g: g * x)\nctx.pull = None\nreturn y", 1),
        ("y = x * x\ny.register_hook(lambda g: g * 2)\nctx.pull = None\nreturn y", 0),
        ("def outer():\n    return x.exp()\nctx.pull = lambda g: g * outer()\nreturn x * x", 0),
        ("ctx.pull = lambda g: g + w.main_grad\nreturn x * w", 0),
        ("ws = [w, w]\nctx.pull = [lambda g, j=i: g + ws[j].main_grad for i in range(2)]\nreturn x * w", 0),
        ("ctx.pull = lambda g: (g + w.main_grad) * w\nreturn x * w", 1),
        ("ctx.pull = lambda g: g.reshape(w.shape)\nreturn x * w", 1),
    ],
    ids=[
        "in a list",
        "partial",
        "default host",
        "not a closure",
        "over the output",
        "hook",
        "hook over nothing",
        "indirect",
        "for what its owner hung on it",
        "the same in a list",
        "for its values too",
        "for its shape alone",
    ],
)
def test_closures(find: Find, forward: str, expected: int) -> None:
    parameters = "x: torch.Tensor, w: torch.Tensor"
    source = "import functools\n\n" + function(forward, "return ctx.pull(grad), None", parameters=parameters)
    assert len(find(source, "CL109")) == expected


def test_a_closure_over_the_output_is_an_output(find: Find) -> None:
    forward = "y = x * x\nctx.pull = lambda g: g * y\nreturn y"
    source = function(forward, "return ctx.pull(grad)", parameters="x: torch.Tensor")
    assert find(source, "CL1") == ["ctx.pull = lambda g: g * y"]
    assert find(source, "CL104") == ["ctx.pull = lambda g: g * y"]


def test_a_hook_is_told_what_it_can_do(say: Find) -> None:
    """It gets no ctx, so it can save nothing."""
    source = function("z = torch.exp(x)\nw.register_hook(lambda g: g * z)\nreturn x * w", "return grad, grad")
    (said,) = say(source, "CL109")
    assert "save_for_backward" not in said
    assert "Let it hold the host values that it needs" in said


# ---- CL111


@pytest.mark.parametrize(
    ("head", "forward", "backward", "expected"),
    [
        ("LAST = None", "global LAST\nLAST = x\nreturn x * x", "return 2 * LAST * grad", 1),
        ("HELD = {}", "HELD.setdefault(0, x)\nreturn x * x", "return 2 * HELD[0] * grad", 1),
        ("HELD = []", "HELD.append((x, 1))\nreturn x * x", "x, _ = HELD.pop()\nreturn 2 * x * grad", 1),
        ("HELD = {}", "HELD[0] = x.shape\nreturn x * x", "return grad.view(HELD[0])", 0),
        ("HELD = {}", "HELD[0] = x\nreturn x * x", "return grad * 2", 0),
        ("HELD = {'k': 1}", "return x * HELD['k']", "return grad * HELD['k']", 0),
        (
            "HELD = {}\n\ndef table(n):\n    if n not in HELD:\n        HELD[n] = torch.arange(n)\n    return HELD[n]",
            "return x * table(4)",
            "return grad * table(4)",
            0,
        ),
    ],
    ids=["global", "setdefault", "a pair on a stack", "host", "never fetched", "read only", "a table with its helper"],
)
def test_side_channels(find: Find, head: str, forward: str, backward: str, expected: int) -> None:
    source = head + "\n\n" + function(forward, backward, parameters="x: torch.Tensor")
    assert len(find(source, "CL111")) == expected


# ---- CL201


@pytest.mark.parametrize(
    ("extra", "other", "expected"),
    [
        ("", {}, 1),
        ("class G(F):\n    @staticmethod\n    def probe(ctx):\n        return ctx.unread\n", {}, 0),
        ("def probe(y):\n    return getattr(y.grad_fn, 'unread')\n", {}, 0),
        ("class Other:\n    def use(self):\n        return self.unread\n", {}, 1),
        ("", {"b.py": "from example import F\n\ndef probe(y):\n    return y.grad_fn.unread\n"}, 0),
        ("", {"b.py": "from example import F\n\ndef mark(y):\n    y.grad_fn.unread = 1\n"}, 1),
        ("", {"b.py": "def probe(y):\n    return y.unread\n"}, 1),
    ],
    ids=[
        "nobody",
        "a subclass",
        "by name",
        "a namesake",
        "another file",
        "written there",
        "another file without the class",
    ],
)
def test_who_reads_a_field(find: Find, extra: str, other: dict[str, str], expected: int) -> None:
    source = function("ctx.unread = x.exp()\nreturn x * w", "return grad, grad") + "\n\n" + extra
    assert len(find(source, "CL201", other=other)) == expected


@pytest.mark.parametrize(("reader", "expected"), [("ctx._Fn__mask", 0), ("ctx.__mask", 0), ("ctx._G__mask", 1)])
def test_a_private_field_has_another_name_outside(find: Find, reader: str, expected: int) -> None:
    source = f"""
    class Fn(Function):
        @staticmethod
        def forward(ctx, x: torch.Tensor):
            ctx.__mask = x @ x
            return x

        @staticmethod
        def backward(ctx, g):
            return g

    def probe(ctx):
        return {reader}
    """
    assert len(find(source, "CL201")) == expected


def test_a_field_that_forward_reads_again_is_alive(find: Find) -> None:
    source = """
    class Layer:
        def forward(self, x):
            self.inner = x.exp()
            return self.inner * 2

        def backward(self, grad):
            return grad * 2
    """
    assert find(source, "CL201") == []


# ---- CL203


@pytest.mark.parametrize(
    ("forward", "backward", "expected"),
    [
        ("if mean:\n    ctx.n = 2\nreturn x", "return grad / ctx.n, None", 1),
        ("if mean:\n    ctx.n = 2\nelse:\n    ctx.n = 1\nreturn x", "return grad / ctx.n, None", 0),
        ("if mean:\n    raise ValueError\nctx.n = 2\nreturn x", "return grad / ctx.n, None", 0),
        ("if mean:\n    ctx.n = 2\nelse:\n    assert False\nreturn x", "return grad / ctx.n, None", 0),
        ("if mean:\n    assert False, 'no'\nelse:\n    ctx.n = 2\nreturn x", "return grad / ctx.n, None", 0),
        ("if mean:\n    ctx.n = 2\nelse:\n    assert x.ndim\nreturn x", "return grad / ctx.n, None", 1),
        ("if FAST:\n    ctx.n = 2\nreturn x", "if not FAST:\n    ctx.n = 1\nreturn grad / ctx.n, None", 0),
        ("if isinstance(ctx.n, int):\n    ctx.n = (ctx.n, 2)\nreturn x", "return grad / ctx.n[0], None", 0),
        ("if not x.requires_grad:\n    return x\nctx.n = 2\nreturn x", "return grad / ctx.n, None", 0),
        ("save = torch.is_grad_enabled()\nif save:\n    ctx.n = 2\nreturn x", "return grad / ctx.n, None", 0),
        ("if ctx is not None:\n    ctx.n = 2\nreturn x", "return grad / ctx.n, None", 0),
        ("if mean:\n    ctx.n = 2\nreturn x", "return grad / getattr(ctx, 'n', 1), None", 0),
        ("if mean:\n    ctx.n = 2\nreturn x", "if hasattr(ctx, 'n'):\n    grad = grad / ctx.n\nreturn grad, None", 0),
        ("ctx.mean = mean\nif mean:\n    ctx.n = 2\nreturn x", "if not ctx.mean:\n    return grad, None\nreturn grad / ctx.n, None", 0),
        ("ctx.n = None\nif mean:\n    ctx.n = 2\nreturn x", "return grad / ctx.n, None", 0),
        ("keep(ctx, mean)\nreturn x", "return grad / ctx.n, None", 0),
        ("ctx.mean = mean\nif mean:\n    ctx.n = 2\nreturn x", "return (grad if ctx.mean and ctx.n else grad), None", 0),
        ("ctx.k = k = x.ndim\nif k > 1:\n    ctx.n = 2\nreturn x", "twice = ctx.k <= 1 or ctx.n == 2\nreturn grad * twice, None", 0),
        ("if mean:\n    ctx.n = 2\nreturn x", "return (grad if ctx.n and mean else grad), None", 1),
        ("if not x.ndim:\n    return ()\nctx.n = 2\nreturn x", "return grad / ctx.n, None", 0),
        ("if mean:\n    ctx.save_for_backward(x)\n    ctx.n = 2\nreturn x", "return grad / ctx.n, None", 0),
        ("ctx.save_for_backward(x)\nif mean:\n    ctx.n = 2\nreturn x", "return grad / ctx.n, None", 1),
        ("if mean:\n    ctx.save_for_backward(x)\n    ctx.n = 2\nelse:\n    ctx.save_for_backward(x)\nreturn x",
         "return grad / ctx.n, None", 1),
    ],
    ids=["one arm", "both arms", "raises", "asserts that nothing gets here", "asserts it before", "asserts something",
         "backward sets it", "it is there before", "no gradient wanted", "gradient mode by name", "called without ctx", "default",
         "hasattr", "left before", "cleared first", "a helper's business", "an operand asks before", "or one of the others",
         "it is asked first itself", "nothing comes out",
         "nothing is saved", "all is saved", "saved on either path"],
)  # fmt: skip
def test_paths_that_leave_a_field_unset(find: Find, forward: str, backward: str, expected: int) -> None:
    source = "def keep(ctx, mean):\n    if mean:\n        ctx.n = 2\n\n" + function(
        forward, backward, parameters="x, mean: bool"
    )
    assert len(find(source, "CL203")) == expected


@pytest.mark.parametrize(
    ("body", "backward", "expected"),
    [
        ("", "return grad * ctx.factor, None", 1),
        ("", "if ctx.needs_input_grad[0]:\n    grad = grad * ctx.factor\nreturn grad, None", 1),
        ("", "return grad * getattr(ctx, 'factor', 1), None", 0),
        ("", "try:\n    grad = grad * ctx.factor\nexcept AttributeError:\n    pass\nreturn grad, None", 0),
        ("unseen.keep(ctx)", "return grad * ctx.factor, None", 0),
        ("ctx.__dict__.update(factor=2)", "return grad * ctx.factor, None", 0),
        ("setattr(ctx, name, 2)", "return grad * ctx.factor, None", 0),
        ("", "return grad * ctx._factor, None", 0),
        ("", "ctx.factor = 2\nreturn grad * ctx.factor, None", 0),
    ],
    ids=["never", "in a branch", "getattr", "caught", "handed away", "by the dictionary", "under a computed name", "private",
         "set by backward"],
)  # fmt: skip
def test_a_field_that_nothing_sets(find: Find, body: str, backward: str, expected: int) -> None:
    source = "import unseen\n\n" + function((body + "\nreturn x * 2").strip(), backward)
    assert len(find(source, "CL203")) == expected


@pytest.mark.parametrize(
    "setter",
    [
        "def prepare(node):\n    node.factor = 2\n",
        "FIELDS = ('factor', 'x')\n",
        "class Base(unseen.Function):\n    pass\n",
        "def prepare(node):\n    node.scale, node.factor, node.rest = 1, 2, 3\n",
        "def prepare(node):\n    node.factor, rest = 1, 2\n",
    ],
    ids=["from outside", "by its name", "a base out of sight", "among others", "before another"],
)
def test_a_field_that_other_code_may_set(find: Find, setter: str) -> None:
    source = "import unseen\n\n" + setter + "\n" + function("return x * 2", "return grad * ctx.factor, None")
    if "Base" in setter:
        source = source.replace("class F(torch.autograd.Function)", "class F(Base, torch.autograd.Function)")
    assert find(source, "CL203") == []


def test_several_fields_of_one_way_out_are_one_finding(find: Find) -> None:
    source = function(
        "if mean:\n    ctx.a = 1\n    ctx.b = 2\nreturn x",
        "return grad * ctx.a * ctx.b, None",
        parameters="x, mean: bool",
    )
    assert find(source, "CL203") == ["ctx.a = 1"]


@pytest.mark.parametrize(
    ("test", "backward", "expected"),
    [
        ("self.training", "return grad * self.mask", 1),
        ("self.training", "return grad if self.mask is None else grad * self.mask", 1),
        ("self.training", "return grad * self.mask if self.training else grad", 0),
        ("self.dropping", "return grad if self.mask is None else grad * self.mask", 0),
        ("x.ndim > 2", "return grad * self.mask", 1),
        ("self.begin(x)", "return grad * self.mask", 1),
    ],
    ids=[
        "mode",
        "None does not tell a stale one",
        "the same question",
        "never changes",
        "by the input",
        "by what it gives",
    ],
)
def test_a_layer_keeps_the_value_of_an_earlier_call(find: Find, test: str, backward: str, expected: int) -> None:
    source = f"""
    class Layer:
        def __init__(self, dropping):
            self.dropping, self.mask = dropping, None

        def forward(self, x):
            if {test}:
                self.mask = torch.rand_like(x) < 0.5
                return x * self.mask
            return x

        def backward(self, grad):
            {backward}
    """
    assert len(find(source, "CL203")) == expected


@pytest.mark.parametrize(
    ("setup", "test", "expected"),
    [
        ("self.ready = True", "not self.ready", 0),
        ("self.begin()", "not self.ready", 0),
        ("self.state = self.begin()", "self.state is None", 0),
        ("self.begin()", "not self.ready and self.training", 0),
        ("self.begin()", "not self.ready or x.ndim > 2", 1),
    ],
    ids=["by a flag", "that a helper sets", "by None", "with more to ask", "or by the input"],
)
def test_what_the_first_call_makes_is_no_stale_value(find: Find, setup: str, test: str, expected: int) -> None:
    source = f"""
    class Layer:
        def __init__(self):
            self.ready, self.state, self.width = False, None, None

        def begin(self):
            self.ready = True

        def reset(self):
            self.ready, self.state = False, None

        def forward(self, x):
            if {test}:
                self.width = x.shape[-1]
                {setup}
            self.last = x
            return x * 2 if self.ready else x

        def backward(self, grad):
            return grad.reshape(-1, self.width) * self.last
    """
    assert len([line for line in find(source, "CL203") if "width" in line]) == expected


def test_a_function_with_an_apply_of_the_projects_own(find: Find) -> None:
    """Its apply puts arguments by keyword on the receiver, and wants one gradient a parent."""
    engine = """
    class Function:
        @classmethod
        def apply(cls, *parents, **options):
            node = cls()
            for name, value in options.items():
                setattr(node, name, value)
            return cls.forward(node, *parents, **options)

        def save_for_backward(self, *kept):
            self.saved_tensors = kept
    """
    source = """
    from engine import Function

    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(x)
            return x * factor

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.factor
    """
    assert find(source, "CL203", "CL213", other={"engine.py": engine}) == []
    theirs = source.replace("from engine import", "from torch.autograd import")
    assert len(find(theirs, "CL203", "CL213")) == 2
    derived = """
    from torch import autograd

    class Function(autograd.Function):
        @classmethod
        def apply(cls, *arguments):
            return super().apply(*arguments)
    """
    assert len(find(source, "CL203", "CL213", other={"engine.py": derived})) == 2


@pytest.mark.parametrize(
    "reader",
    [
        "pick = lambda value=ctx.y: value",
        "def pick(*, value=ctx.y): return value",
        "class Kept: value = ctx.y",
        "class Kept(make(ctx.y)): pass",
        "@keep(ctx.y)\n            def pick(): return 1",
    ],
    ids=["default of a lambda", "default of a function", "class body", "base of a class", "decorator"],
)
def test_what_the_scope_around_evaluates_is_read(find: Find, reader: str) -> None:
    source = f"""
    class Fn(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.y = x @ x
            return ctx.y * 2

        @staticmethod
        def backward(ctx, g):
            {reader}
            return g
    """
    assert find(source, "CL103") == ["ctx.y = x @ x"]
