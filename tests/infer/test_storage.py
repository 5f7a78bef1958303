"""Host or device: what each kind of evidence shows about a value that is kept."""

from __future__ import annotations

import textwrap

import pytest

from tests.infer.judging import classes, function, judged


def of(forward: str, reads: str, signature: str = "x", module: str = "", backward: str = "grad") -> dict[str, str]:
    return classes(function(forward, reads, signature, module, backward))


def test_what_is_called_is_no_tensor_whatever_callers_pass() -> None:
    module = """
    class Wrap(nn.Module):
        def forward(self, x, inner):
            return F.apply(inner, torch.ones(3))
    """
    assert of("ctx.step = step\nreturn step(x)", "step", "step, x", module) == {"step": "SAFE"}


@pytest.mark.parametrize(
    ("annotation", "storage"),
    [
        ("Tensor | int", "maybe"),
        ("Union[Tensor, float]", "maybe"),
        ("torch.LongTensor | int | None", "maybe"),
        ("Tensor | None", "device"),
        ("int | None", "host"),
    ],
)
def test_a_helper_that_takes_both_says_that_it_may_be_either(annotation: str, storage: str) -> None:
    module = f"""
    from typing import Union

    def helper(x, count: {annotation}):
        return x * 2
    """
    body = "ctx.count = count\nreturn helper(x, count)"
    found = judged(function(body, "count", "x: Tensor, count", module))
    assert found["count"].storage == storage


@pytest.mark.parametrize("use", ["members.size()", "torch.distributed.get_world_size(group=members)"])
def test_process_groups_are_handles(use: str) -> None:
    body = f"ctx.members = members\nn = {use}\nr = members.rank()\nreturn x * n"
    assert of(body, "members", "x: Tensor, members") == {"members": "SAFE"}


def test_a_group_that_a_caller_fills_with_something_unclear_stays_a_handle() -> None:
    module = """
    def wrap(*args: tuple[Tensor, ...]):
        return F.apply(args[0], args[1])
    """
    body = "ctx.members = members\ntorch.distributed.all_reduce(x, group=members)\nreturn x"
    assert of(body, "members", "x, members", module) == {"members": "SAFE"}


def test_dtype_and_device_say_little_of_an_object_with_attributes_of_its_own() -> None:
    body = "ctx.plan = plan\ny = x.to(plan.dtype) * plan.factor\nreturn y"
    assert of(body, "plan", "x: Tensor, plan") == {"plan": "SAFE"}


def test_dtype_is_enough_for_a_plain_value() -> None:
    assert of("ctx.w = second\nreturn x.to(second.dtype)", "w", "x: Tensor, second") == {"w": "RECOMPUTE"}


def test_asking_for_an_attribute_with_a_default_does_not_make_a_config() -> None:
    body = "ctx.t = t\nblock = getattr(t, 'block', None)\nreturn x * t.to(torch.float32)"
    assert of(body, "t", "x: Tensor, t") == {"t": "RECOMPUTE"}


@pytest.mark.parametrize("default", ["False", "0", "'none'"])
def test_the_default_of_getattr_shows_the_kind_of_a_hung_attribute(default: str) -> None:
    body = f"ctx.mark = getattr(w, 'some_mark', {default})\nreturn x * w"
    assert of(body, "mark", "x: Tensor, w: Tensor") == {"mark": "SAFE"}


def test_unbound_tensor_methods_are_methods() -> None:
    body = "ctx.n = torch.Tensor.size(x)\nctx.y = torch.Tensor.matmul(x, x)\nreturn ctx.y"
    assert of(body, "n y", "x: Tensor") == {"n": "SAFE", "y": "SAVE"}


def test_arithmetic_builtins_on_numbers_give_numbers() -> None:
    body = "whole, part = divmod(x.shape[0], 4)\nctx.n = whole + (part != 0)\nctx.m = abs(x.dim() - 3)\nreturn x"
    assert of(body, "n m", "x: Tensor") == {"n": "SAFE", "m": "SAFE"}


def test_arithmetic_builtins_on_tensors_give_tensors() -> None:
    assert of("ctx.a = abs(x)\nreturn x", "a", "x: Tensor") == {"a": "RECOMPUTE"}


def test_a_missing_gradient_is_no_evidence_against_a_tensor_name() -> None:
    body = "ctx.cu_seqlens_padded = cu_seqlens_padded\nreturn kernel_somewhere(x, cu_seqlens_padded)"
    found = of(body, "cu_seqlens_padded", "x: Tensor, cu_seqlens_padded", backward="grad, None")
    assert found == {"cu_seqlens_padded": "RECOMPUTE"}


def test_names_count_whole_endings_only() -> None:
    body = "ctx.positions_padded = keep\nctx.keep_p = keep_p\nreturn x"
    assert of(body, "keep_p", "x: Tensor, keep, keep_p") == {"keep_p": "SAFE"}


def test_how_a_helper_that_tests_the_type_uses_a_value_says_nothing() -> None:
    module = """
    def scaled(a, b):
        both = isinstance(b, torch.Tensor)
        if both:
            return a * b.contiguous()
        return a * b
    def wrap(x):
        return F.apply(x, 2.0)
    """
    assert of("ctx.by = by\nreturn scaled(x, by)", "by", "x: Tensor, by", module) == {"by": "SAFE"}


def test_an_asserted_type_is_evidence() -> None:
    module = """
    def checked(b):
        assert isinstance(b, torch.Tensor)
        return b.contiguous()
    """
    assert of("ctx.by = by\nreturn x * checked(by)", "by", "x: Tensor, by", module) == {"by": "RECOMPUTE"}


def test_weak_references_hold_nothing() -> None:
    body = "ctx.back = [weakref.ref(w) for w in (x, y)]\nreturn x"
    assert of(body, "back", "x: Tensor, y: Tensor") == {"back": "SAFE"}


# -- places ------------------------------------------------------------------------------------------------------------


def test_each_place_of_star_args_is_judged_alone() -> None:
    body = "plan, first, *others = args\nctx.plan = plan\nctx.first = first\nctx.save_for_backward(*others)\nreturn first.sum()"
    body += "\n"
    found = of(body.replace("return first", "y = plan.order\nreturn first"), "plan first", "*args")
    assert found == {"plan": "SAFE", "first": "RECOMPUTE"}


def test_keywords_of_a_wrapper_are_judged_alone() -> None:
    module = """
    def wrap(x, **options):
        group = options.pop("group", None)
        weight = options.pop("weight").contiguous()
        return F.apply(x, group, weight)
    """
    body = "ctx.where = where\nctx.w = w\nreturn x"
    assert of(body, "where w", "x: Tensor, where, w", module) == {"where": "SAFE", "w": "RECOMPUTE"}


def test_items_of_a_dictionary_are_judged_by_key() -> None:
    body = """
    ctx.table = maps["table"].int().contiguous()
    ctx.size = maps["size"]
    ctx.rows = range(maps["size"])
    return x
    """
    assert of(body, "table size rows", "x: Tensor, maps: dict") == {
        "table": "RECOMPUTE",
        "size": "SAFE",
        "rows": "SAFE",
    }


def test_a_packed_tuple_is_judged_by_position() -> None:
    body = """
    eps, weight, name = packed
    ctx.eps = eps
    ctx.weight = weight.contiguous()
    ctx.name = name
    return x
    """
    assert of(body, "eps weight name", "x: Tensor, packed") == {
        "eps": "SAFE",
        "weight": "RECOMPUTE",
        "name": "SAFE",
    }


def test_star_args_annotated_as_a_tuple_are_the_tuple() -> None:
    body = "ctx.rest = [a if not torch.is_tensor(a) else None for a in args]\nreturn args[0]"
    assert of(body, "rest", "*args: tuple[Tensor, ...]") == {"rest": "SAFE"}


def test_setup_context_unpacks_inputs_by_position() -> None:
    source = """
    class F(torch.autograd.Function):
        @staticmethod
        def forward(plan, *tensors):
            return tensors[0] * 2
        @staticmethod
        def setup_context(ctx, inputs, output):
            plan, *tensors = inputs
            ctx.plan = plan
            ctx.kept = tensors
            ctx.save_for_backward(*tensors)
        @staticmethod
        def backward(ctx, grad):
            use(ctx.plan, ctx.kept)
            return None, grad
    """
    assert classes(source) == {"plan": "SAFE", "kept": "RECOMPUTE"}


def test_a_tuple_with_a_tail_keeps_the_positions_before_it() -> None:
    body = "both = (x.shape, *tensors)\nctx.shape = both[0]\nctx.all = both\nreturn x"
    assert of(body, "shape all", "x: Tensor, *tensors: Tensor") == {"shape": "SAFE", "all": "RECOMPUTE"}


# -- callers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "cls"),
    [
        ("self.held = torch.tensor([2])", "RECOMPUTE"),
        ("self.held = nn.Parameter(torch.empty(width))", "RECOMPUTE"),
        ("self.register_buffer('held', torch.zeros(width))", "RECOMPUTE"),
        ("self.held = int(width)", "SAFE"),
        ("self.held = 0.5", "SAFE"),
    ],
)
def test_attributes_of_a_calling_module_are_read_from_its_constructor(made: str, cls: str) -> None:
    module = f"""
    class Layer(nn.Module):
        def __init__(self, width):
            super().__init__()
            {made}
        def forward(self, x):
            return F.apply(x, self.held)
    """
    assert of("ctx.other = other\nreturn external(x, other)", "other", "x: Tensor, other", module) == {"other": cls}


def test_names_of_an_enclosing_function_are_unknown_not_host() -> None:
    module = """
    def outer(grads):
        def run(x):
            return F.apply(x, grads)
        return run
    """
    field = judged(function("ctx.g = g\nreturn x * g.sum()", "g", "x: Tensor, g", module))["g"]
    assert field.cls.value == "RECOMPUTE"


# -- results -----------------------------------------------------------------------------------------------------------


def test_return_annotations_speak_where_the_body_does_not() -> None:
    module = """
    def made_elsewhere(x) -> tuple[Tensor, int]:
        return extension.run(x)
    """
    body = "a, n = made_elsewhere(x)\nctx.a = a\nctx.n = n\nreturn a"
    assert of(body, "a n", "x", module) == {"a": "SAVE", "n": "SAFE"}


def test_the_result_of_unseen_code_given_tensors_is_a_tensor() -> None:
    body = "kept = extension.run(flag, args)\nctx.kept = kept\nctx.save_for_backward(*args)\nreturn kept"
    assert of(body, "kept", "flag, *args") == {"kept": "SAVE"}


def test_a_stub_that_raises_gives_way_to_the_operator() -> None:
    module = """
    def find(name):
        def missing(*args):
            raise RuntimeError(name)
        try:
            return getattr(torch.ops.lib, name)
        except AttributeError:
            return missing
    packed = find("packed")
    """
    assert of("a, b = packed(x)\nctx.b = b\nreturn a", "b", "x: Tensor", module) == {"b": "SAVE"}


def test_emptied_shells_of_tensor_subclasses_are_host() -> None:
    module = """
    def strip(*tensors):
        kept, shells = [], []
        for t in tensors:
            if t is None or isinstance(t, torch.Tensor):
                kept.append(t)
                shells.append(None)
            else:
                inner, shell = t.prepare_for_saving()
                kept.extend(inner)
                shells.append(shell)
        return kept, shells
    """
    body = "kept, shells = strip(x, w)\nctx.save_for_backward(*kept)\nctx.shells = shells\nreturn x"
    assert of(body, "shells", "x: Tensor, w: Tensor", module) == {"shells": "SAFE"}


def test_containers_that_other_methods_fill() -> None:
    module = """
    class Tracker:
        def __init__(self):
            self.states = {}
            self.names = {}
        def add(self, name, seed):
            self.states[name] = torch.cuda.get_rng_state()
            self.names[name] = str(name)
        def snapshot(self):
            return {name: self.states[name] for name in self.states}
        def labels(self):
            return dict(self.names)
    tracker = Tracker()
    """
    body = "ctx.states = tracker.snapshot()\nctx.labels = tracker.labels()\nreturn x"
    assert of(body, "states labels", "x: Tensor", module) == {"states": "SAVE", "labels": "SAFE"}


@pytest.mark.parametrize("alias", ["short = F.apply", "short = half_precision(F.apply)"])
def test_callers_of_a_module_level_alias_are_callers(alias: str) -> None:
    source = function("ctx.bias = bias\nreturn external(x, bias)", "bias", "x: Tensor, bias") + textwrap.dedent(
        f"""
        {alias}
        class Layer(nn.Module):
            def __init__(self, bias=True):
                super().__init__()
                self.bias = bias
            def forward(self, x):
                return short(x, self.bias)
        """
    )
    assert classes(source) == {"bias": "SAFE"}


def test_callers_of_an_imported_alias_are_callers() -> None:
    source = function("ctx.kept = kept\nreturn external(x, kept)", "kept", "x: Tensor, kept") + "short = F.apply\n"
    other = "from m import short\ndef run(x):\n    return short(x, torch.ones(3))\n"
    assert classes(source, {"n.py": other}) == {"kept": "RECOMPUTE"}


@pytest.mark.parametrize(("held", "cls"), [("1 if on else 0", "SAFE"), ("torch.ones(4)", "RECOMPUTE")])
def test_callers_of_a_wrapper_speak_for_what_it_only_hands_on(held: str, cls: str) -> None:
    source = function("ctx.bias = bias\nreturn external(x, bias)", "bias", "x, bias") + textwrap.dedent(
        f"""
        def wrapped(x, second):
            return F.apply(x, second)
        class Layer(nn.Module):
            def __init__(self, on=True):
                super().__init__()
                self.second = {held}
            def forward(self, x):
                return wrapped(x, self.second)
        """
    )
    assert classes(source) == {"bias": cls}


def test_the_position_of_an_item_is_a_number() -> None:
    body = "ctx.place = (first + second).index(name)\nreturn x"
    assert of(body, "place", "x: Tensor, first, second, name") == {"place": "SAFE"}


@pytest.mark.parametrize("call", ["copy.copy", "copy.deepcopy"])
def test_a_copy_of_a_container_is_one(call: str) -> None:
    body = f"states = dict(a=x @ x, b=x @ w)\nctx.states = {call}(states)\nreturn x"
    field = judged(function(body, "states", "x: Tensor, w: Tensor", "import copy"))["states"]
    assert (field.cls.value, field.rule) == ("SAVE", "CL106")


def test_a_copy_of_a_record_has_what_it_is_told() -> None:
    module = """
    import dataclasses
    @dataclasses.dataclass
    class Layout:
        offsets: Tensor
        count: int
    """
    body = "ctx.layout = dataclasses.replace(layout, offsets={})\nreturn x"
    assert of(body.format("None"), "layout", "x: Tensor, layout: Layout", module) == {"layout": "SAFE"}
    assert of(body.format("x @ x"), "layout", "x: Tensor, layout: Layout", module) == {"layout": "SAVE"}


# -- type tests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["flag", "ctx.flag"])
@pytest.mark.parametrize("test", ["isinstance(by, Tensor)", "torch.is_tensor(by)"])
def test_a_type_test_counts_where_its_outcome_is_asked_for(flag: str, test: str) -> None:
    body = f"""
    {flag} = {test}
    if {flag}:
        ctx.save_for_backward(by)
    else:
        ctx.by = by
    return x * by
    """
    assert of(body, "by", "x: Tensor, by") == {"by": "SAFE"}
    assert of(body.replace(f"if {flag}", f"if not {flag}"), "by", "x: Tensor, by") == {"by": "RECOMPUTE"}


def test_a_type_test_says_nothing_of_a_name_that_is_bound_anew() -> None:
    body = """
    flag = isinstance(by, Tensor)
    by = x.abs()
    if not flag:
        ctx.by = by
    return x * by
    """
    assert of(body, "by", "x: Tensor, by") == {"by": "RECOMPUTE"}


def test_a_test_for_a_subclass_of_tensor_is_one_for_a_tensor() -> None:
    module = """
    class Held(Tensor):
        origin: Tensor
    def open_up(by):
        return by.origin if isinstance(by, Held) else by
    """
    body = "ctx.by = by\nreturn x * open_up(by)"
    assert of(body, "by", "x: Tensor, by", module) == {"by": "RECOMPUTE"}
    assert of(body, "by", "x: Tensor, by", module.replace("Held(Tensor)", "Held(Base)")) == {"by": "SAFE"}


# -- operators -----------------------------------------------------------------------------------------------------------


def test_backward_operators_say_what_they_are_given() -> None:
    read = "torch.ops.aten.embedding_backward(grad, ctx.rows, 9, ctx.pad, ctx.scaled, ctx.thin)"
    body = "ctx.rows, ctx.pad, ctx.scaled, ctx.thin = given\nreturn x"
    found = of(body, "rows", "x: Tensor, *given", backward=read)
    assert found == {"rows": "RECOMPUTE", "pad": "SAFE", "scaled": "SAFE", "thin": "SAFE"}


def test_an_overload_is_the_operator() -> None:
    body = "ctx.y = torch.ops.aten.mul.Tensor(x, x)\nctx.n = n\nreturn torch.ops.aten.cumsum.default(ctx.y, n)"
    assert of(body, "y n", "x: Tensor, n") == {"y": "RECOMPUTE", "n": "SAFE"}


def test_functional_collectives_are_given_numbers_and_names_behind_the_tensor() -> None:
    source = """
    def backward(ctx, grad):
        return torch.ops._c10d_functional.reduce_scatter_tensor(grad, "sum", ctx.parts, ctx.where), None, None
    def setup(ctx, inputs, output):
        x, parts, where = inputs
        ctx.parts, ctx.where = parts, where
    torch.library.register_autograd("lib::gather", backward, setup_context=setup)
    """
    assert classes(source) == {"parts": "SAFE", "where": "SAFE"}


def test_the_group_of_a_differentiable_collective_is_no_tensor() -> None:
    body = "ctx.where = where\nimport torch.distributed.nn.functional as dnn\nreturn dnn.all_gather(x, where)"
    assert of(body, "where", "x: Tensor, where") == {"where": "SAFE"}


def test_a_library_s_own_code_is_what_the_table_says_of_it() -> None:
    others = {
        "torch/__init__.py": "",
        "torch/nn/__init__.py": "",
        "torch/nn/functional.py": "def pad(input, pad, mode='constant'):\n    return dispatch(pad, input)\n",
        "torch/layers.py": "from torch.nn.functional import pad\n"
        + function("ctx.y = pad(x, n)\nctx.n = n\nreturn ctx.y.exp()", "y n", "x: Tensor, n"),
    }
    assert classes("", others, path="torch/layers.py") == {"y": "RECOMPUTE", "n": "SAFE"}


def test_nested_functions_that_a_library_calls_fill_what_is_around_them() -> None:
    body = """
    from torch.utils._pytree import tree_map
    devices = []
    def look(leaf):
        if isinstance(leaf, Tensor):
            devices.append(leaf.get_device())
        return leaf
    tree_map(look, x)
    states = []
    for number in devices:
        states.append(torch.cuda.get_rng_state(number))
    ctx.states = states
    ctx.devices = devices
    return x
    """
    assert of(body, "states devices", "x: Tensor") == {"states": "SAVE", "devices": "SAFE"}


@pytest.mark.parametrize("owner", ["accelerator", "current_accelerator()"])
def test_a_handle_s_method_that_is_given_a_tensor_does_to_it_what_a_tensor_s_own_does(owner: str) -> None:
    module = "from lib import current_accelerator\n"
    body = f"""
    ctx.pinned = {owner}.pin_memory(x)
    ctx.filled = {owner}.pin_memory(torch.empty_like(x))
    ctx.filled.copy_(x)
    ctx.product = {owner}.pin_memory(x @ x)
    ctx.accelerator = accelerator
    return x * 2
    """
    reads = "pinned filled product accelerator"
    assert of(body, reads, "x: Tensor, accelerator", module) == {
        "pinned": "RECOMPUTE",
        "filled": "RECOMPUTE",
        "product": "SAVE",
        "accelerator": "SAFE",
    }


def test_a_tensor_s_own_method_takes_a_number() -> None:
    body = "ctx.by = by\nctx.far = by.pin_memory(device)\nreturn x * 2"
    assert of(body, "by far", "x: Tensor, by, device: str") == {"by": "RECOMPUTE", "far": "RECOMPUTE"}
