"""What the callers of a type show about its parameters, and what they don't."""

from __future__ import annotations

import pytest

from tests.infer.judging import PRELUDE, classes, function, judged


def of(forward: str, reads: str, signature: str, module: str) -> dict[str, str]:
    return classes(function(forward, reads, signature, module))


@pytest.mark.parametrize(
    ("line", "cls"),
    [
        ("extra: how to join tensors of all workers", "SAFE"),
        ("extra: Scale of the tensor after the reduction", "SAFE"),
        ("extra: a tensor of weights", "RECOMPUTE"),
        ("extra: Tensor, one row a worker", "RECOMPUTE"),
        ("extra: optional torch.Tensor", "RECOMPUTE"),
        ("extra (list of tensors): what to add", "RECOMPUTE"),
        ("extra (torch.Tensor): how to weigh", "RECOMPUTE"),
    ],
)
def test_a_docstring_speaks_of_a_type_or_of_tensors_in_general(line: str, cls: str) -> None:
    module = f"""
    def wrap(x, extra):
        '''Reduce.

        Args:
            {line}
        '''
        return F.apply(x, extra)
    """
    assert of("ctx.extra = extra\nreturn x", "extra", "x: Tensor, extra", module) == {"extra": cls}


def test_the_number_of_names_tells_which_of_several_tuples_came_back() -> None:
    module = """
    def prepare(x, packed):
        width = x.shape[-1]
        if packed:
            return x, width
        y = x * 2
        return x, y, width

    def wrap(x: Tensor):
        first, second, width = prepare(x, False)
        return F.apply(first, second, width)
    """
    body = "ctx.second = second\nctx.width = width\nreturn x"
    assert of(body, "second width", "x, second, width", module) == {"second": "RECOMPUTE", "width": "SAFE"}


def test_tuples_of_one_length_are_joined_by_position() -> None:
    module = """
    def prepare(x, packed):
        if packed:
            return x, 1, x
        if x.is_cuda:
            return x, 2, None
        return x, 3

    def wrap(x: Tensor):
        first, number, third = prepare(x, False)
        return F.apply(first, number, third)
    """
    found = judged(function("ctx.n = n\nctx.t = t\nreturn x", "n t", "x, n, t", module))
    assert found["n"].cls.value == "SAFE"
    assert (found["t"].cls.value, found["t"].storage.value) == ("RECOMPUTE", "maybe")


def test_an_object_of_a_class_of_the_project_is_one_whatever_it_shares_with_tensors() -> None:
    module = """
    class Path:
        def __init__(self, steps):
            self.steps = steps

    def wrap(x: Tensor, path: Path):
        return F.apply(x, path)
    """
    body = "ctx.path = path\nn = path.shape[0]\nreturn x * n"
    assert of(body, "path", "x: Tensor, path", module) == {"path": "SAFE"}


def test_an_object_that_is_handed_over_with_tensors_in_it_is_no_handle() -> None:
    module = """
    class Pair:
        def __init__(self, left, right):
            self.left, self.right = left, right

    def wrap(x: Tensor):
        return F.apply(x, Pair(x * 2, x * 3))
    """
    body = "ctx.pair = pair\nn = pair.shape[0]\nreturn x * n"
    assert of(body, "pair", "x: Tensor, pair", module) == {"pair": "RECOMPUTE"}


def test_results_of_unseen_code_that_come_together_leave_the_name_its_say() -> None:
    module = """
    import elsewhere

    def run():
        q, lengths, longest_len = elsewhere.prepare(torch.ones(3))
        return F.apply(q, lengths, longest_len)
    """
    body = "ctx.longest_len = longest_len\nreturn x"
    assert of(body, "longest_len", "x, lengths, longest_len", module) == {"longest_len": "SAFE"}


def test_an_object_made_on_the_spot_applies_its_class() -> None:
    module = """
    class Wrap(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = torch.LongTensor(3)

        def forward(self, x):
            return F().apply(x, self.steps)
    """
    assert of("ctx.steps = steps\nreturn x", "steps", "x: Tensor, steps", module) == {"steps": "RECOMPUTE"}


@pytest.mark.parametrize(("value", "cls"), [("True", "SAFE"), ("torch.ones(3)", "RECOMPUTE")])
def test_a_wrapper_of_a_wrapper_only_hands_on_what_its_callers_pass(value: str, cls: str) -> None:
    module = f"""
    def inner(x, bias):
        return F.apply(x, bias)

    def outer(x, bias):
        return inner(x, bias)

    def run(x):
        return outer(x, {value})
    """
    assert of("ctx.bias = bias\nreturn x", "bias", "x: Tensor, bias", module) == {"bias": cls}


def test_a_namesake_that_a_caller_imports_itself_is_no_wrapper_of_ours() -> None:
    module = """
    def outer(x, level):
        return F.apply(x, level)
    """
    caller = """
    from m import outer

    def run(x):
        return outer(x, 3)

    def other(x):
        from elsewhere import outer
        return outer(x, torch.ones(3))
    """
    found = judged(
        function("ctx.level = level\nreturn x", "level", "x: Tensor, level", module), {"n.py": PRELUDE + caller}
    )
    assert found["level"].storage.value == "host"


def test_a_name_with_two_sources_says_nothing() -> None:
    module = """
    def outer(x, level):
        return F.apply(x, level)
    """
    caller = """
    from m import outer
    try:
        from elsewhere import outer
    except ImportError:
        outer = None

    def run(x):
        return outer(x, torch.ones(3))
    """
    found = judged(
        function("ctx.level = level\nreturn x", "level", "x: Tensor, level", module), {"n.py": PRELUDE + caller}
    )
    assert found["level"].storage.value == "host"


def test_a_size_of_a_new_tensor_is_a_number() -> None:
    body = "ctx.B = B\ny = torch.empty((x.shape[0], B), device=x.device)\nreturn y"
    assert of(body, "B", "x: Tensor, B", "") == {"B": "SAFE"}


def test_what_fills_a_new_tensor_is_no_size() -> None:
    body = "ctx.C = C\ny = torch.full((3, 4), C)\nreturn y * C"
    assert of(body, "C", "x: Tensor, C", "") == {"C": "RECOMPUTE"}


def test_a_class_method_has_its_class_in_front_of_ctx() -> None:
    source = """
    class F(torch.autograd.Function):
        @classmethod
        def forward(cls, ctx, x, width, extra):
            ctx.width, ctx.extra = width, extra
            return x

        @classmethod
        def backward(cls, ctx, grad):
            return use(grad, ctx.width, ctx.extra), None, None

    def run(x: Tensor):
        return F.apply(x, 3, torch.ones(2))
    """
    assert classes(source) == {"width": "SAFE", "extra": "RECOMPUTE"}


def test_callers_see_the_last_of_several_classes_of_one_name() -> None:
    once = function("ctx.level = level\nreturn x", "level", "x: Tensor, level: int", "").replace(
        " level: int", " level"
    )
    again = function("return x", "", "x: Tensor, mask", "")
    caller = "\ndef run(x: Tensor):\n    return F.apply(x, torch.ones(3))\n"
    assert classes(once + again + caller) == {"level": "SAFE"}


def test_classes_in_the_arms_of_a_branch_have_the_same_callers() -> None:
    lines = function("ctx.level = level\nreturn x", "level", "x: Tensor, level", "").strip().splitlines()
    arm = "\n".join(f"    {line}" for line in lines)
    caller = "\ndef run(x: Tensor):\n    return F.apply(x, torch.ones(3))\n"
    assert classes(f"if torch.cuda.is_available():\n{arm}\nelse:\n{arm}\n{caller}") == {"level": "RECOMPUTE"}


@pytest.mark.parametrize(("held", "cls"), [("self.table", "RECOMPUTE"), ("self.width", "SAFE")])
def test_an_object_of_a_class_outside_holds_what_is_set_on_it(held: str, cls: str) -> None:
    module = f"""
    import extension

    class Wrap(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.ones(3)
            self.width = 3

        def described(self):
            spec = extension.Spec()
            spec.content = {held}
            return spec

        def forward(self, x):
            return F.apply(x, self.described())
    """
    assert of("ctx.spec = spec\nreturn x", "spec", "x: Tensor, spec", module) == {"spec": cls}


def test_what_a_calling_object_keeps_in_a_cache_of_its_own() -> None:
    module = """
    class Operator:
        def __init__(self, layout):
            self.layout = layout
            self.tables = dict()

        def lookup(self, device):
            if device in self.tables:
                return self.tables[device]
            table = torch.zeros(3, device=device)
            self.tables[device] = (table, 16)
            return self.tables[device]

        def __call__(self, x: Tensor):
            table, width = self.lookup(x.device)
            return F.apply(x, table, width)
    """
    body = "ctx.table, ctx.width = table, width\nreturn x"
    assert of(body, "table width", "x: Tensor, table, width", module) == {"table": "RECOMPUTE", "width": "SAFE"}


def test_an_alias_under_another_name_is_one() -> None:
    module = """
    def slow(x, gain):
        return x * gain

    class Loss(nn.Module):
        def __init__(self, gain=2.0):
            super().__init__()
            self.gain = gain

        def forward(self, x):
            chosen = fast if x.is_cuda else slow
            if x.is_cuda:
                chosen = fast
            else:
                chosen = slow
            return chosen(x, self.gain)
    """
    source = function("ctx.gamma = gamma\nreturn x", "gamma", "x: Tensor, gamma", module) + "\nfast = F.apply\n"
    assert classes(source) == {"gamma": "SAFE"}


def test_a_table_that_a_long_helper_makes_is_a_tensor() -> None:
    """The statements that a caller's helpers take are counted; where an argument hangs on them, more are allowed."""
    steps = "\n".join(f"        rows[{n}] = rows[{n}] + {n}" for n in range(450))
    source = f"""
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, plan, width):
        ctx.plan, ctx.width = plan, width
        return launch(x, plan, width)

    @staticmethod
    def backward(ctx, grad):
        return launch(grad, ctx.plan, ctx.width), None, None


def made(layout):
    rows = layout.nonzero()
    if layout.dim() > 1:
{steps}
    return finished(rows)


def finished(rows):
    return rows.int().contiguous(), rows.shape[0]


def wrap(x, layout):
    plan, width = made(layout)
    return F.apply(x, plan, width)
"""
    assert classes(source) == {"plan": "RECOMPUTE", "width": "SAFE"}
