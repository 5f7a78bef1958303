"""Verdicts follow what the code does: they survive new names, another order, helpers, and annotations that add nothing."""

from __future__ import annotations

import ast
import random
import textwrap
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.infer.judging import PRELUDE, classes


@dataclass(frozen=True)
class Sample:
    """A module whose verdicts rest on evidence, the parameters of its forward with their types, and the verdicts."""

    source: str
    types: dict[str, str]
    expected: dict[str, str]


SAMPLES = {
    "norm": Sample(
        """
        def statistics(value, small):
            centre = value.mean(-1, keepdim=True)
            spread = ((value - centre) ** 2).mean(-1, keepdim=True)
            return centre, torch.rsqrt(spread + small)

        class Norm(torch.autograd.Function):
            @staticmethod
            def forward(ctx, data, gain, small, label):
                centre, scale = statistics(data, small)
                product = torch.matmul(data, gain)
                width = data.shape[-1]
                text = label.upper() if label == "rows" else "none"
                positive = data > 0
                noise = torch.rand_like(data)
                ctx.centre = centre
                ctx.scale = scale
                ctx.product = product
                ctx.width = width
                ctx.text = text
                ctx.positive = positive
                ctx.noise = noise
                ctx.small = small
                ctx.gain = gain.t()
                return product.sum()

            @staticmethod
            def backward(ctx, grad):
                outcome = grad * ctx.centre * ctx.scale * ctx.product * ctx.positive * ctx.noise * ctx.small
                shown = (ctx.width, ctx.text)
                return outcome @ ctx.gain, None, None, None

        def run(data, gain):
            return Norm.apply(data, gain, 1e-5, "rows")
        """,
        {"data": "Tensor", "gain": "Tensor", "small": "float", "label": "str"},
        {
            "centre": "RECOMPUTE",
            "scale": "RECOMPUTE",
            "product": "SAVE",
            "width": "SAFE",
            "text": "SAFE",
            "positive": "RECOMPUTE",
            "noise": "SAVE",
            "small": "SAFE",
            "gain": "RECOMPUTE",
        },
    ),
    "kernel": Sample(
        """
        @triton.jit
        def fill(source, target, count, SIZE: tl.constexpr):
            value = tl.load(source + count)
            tl.store(target + count, value)

        def launch(source, count):
            target = torch.empty_like(source)
            fill[(1,)](source, target, count, SIZE=16)
            return target, count * 2

        class Launch(torch.autograd.Function):
            @staticmethod
            def forward(ctx, source, count, members, step):
                target, double = launch(source, count)
                torch.distributed.all_reduce(target, group=members)
                parts = (source.shape, count)
                pair = [source.contiguous(), double]
                later = step(source)
                ctx.target = target
                ctx.double = double
                ctx.members = members
                ctx.step = step
                ctx.parts = parts
                ctx.pair = pair
                ctx.later = later
                return target.sum()

            @staticmethod
            def backward(ctx, grad):
                total = ctx.target * ctx.double + ctx.later + ctx.pair[0]
                torch.distributed.all_reduce(total, group=ctx.members)
                shape, count = ctx.parts
                return ctx.step(total) * grad, None, None, None

        class Module(nn.Module):
            def __init__(self, count: int):
                super().__init__()
                self.count = count
            def forward(self, source):
                return Launch.apply(source, self.count, None, torch.relu)
        """,
        {"source": "Tensor", "count": "int", "members": "torch.distributed.ProcessGroup", "step": "Callable"},
        {
            "target": "SAVE",
            "double": "SAFE",
            "members": "SAFE",
            "step": "SAFE",
            "parts": "SAFE",
            "pair": "RECOMPUTE",
            "later": "SAVE",
        },
    ),
    "layer": Sample(
        """
        class Inner:
            def forward(self, value):
                self.seen = value
                return value * 2
            def backward(self, grad, value):
                return (grad * 2 * self.seen,)

        class Outer:
            def __init__(self, width):
                self.inner = Inner()
                self.width = width
                self.table = torch.randn(width)
            def prepare(self, value):
                return value.clamp(min=0), value.shape[0]
            def forward(self, value):
                clipped, rows = self.prepare(value)
                answer = self.inner.forward(value)
                chosen = torch.sort(value).indices
                self.clipped = clipped
                self.rows = rows
                self.answer = answer
                self.chosen = chosen
                self.shifted = value + self.table
                return answer + clipped
            def backward(self, grad, value):
                mixed = grad * self.clipped * self.answer + self.shifted[self.chosen] + self.rows
                return (mixed,)
        """,
        {"value": "Tensor"},
        {
            "seen": "RECOMPUTE",
            "clipped": "RECOMPUTE",
            "rows": "SAFE",
            "answer": "SAVE",
            "chosen": "SAVE",
            "shifted": "RECOMPUTE",
        },
    ),
}
LIES = (
    "mask weight bias eps group tensor cu_seqlens handle shape x q alpha size n kernel quantizer scale_factor rng "
    "is_causal dim logits dropout_p indices process_group num_heads state dtype_name buffer seqlens flag axis value_ids "
    "window_size fn config y mode probs offset hidden_states stride rank_mask labels g step_size h0 mesh cos"
).split()
KEPT = frozenset(
    "forward backward setup_context __init__ ctx self super torch triton tl nn Tensor math functools weakref jit apply "
    "Function autograd staticmethod SIZE Module".split()
)


def tree_of(sample: Sample) -> ast.Module:
    return ast.parse(textwrap.dedent(sample.source))


def own_names(tree: ast.AST) -> list[str]:
    """Every name that the module itself gives: parameters, locals, functions, classes, attributes that it sets."""
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            names[node.arg] = None
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] = None
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names[node.name] = None
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names[node.attr] = None
    return [name for name in names if name not in KEPT]


class Renamer(ast.NodeTransformer):
    def __init__(self, table: dict[str, str]) -> None:
        self.table = table

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self.table.get(node.arg, node.arg)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.table.get(node.id, node.id)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.table.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.table.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in ("ctx", "self"):
            node.attr = self.table.get(node.attr, node.attr)
        return node


def main_forward(tree: ast.Module) -> ast.FunctionDef:
    """The forward of the last class that has both methods and keeps something."""
    found = None
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef)}
            if "forward" in methods and "backward" in methods:
                found = methods["forward"]
    assert found is not None
    return found


def keeps(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Attribute)
        and isinstance(statement.targets[0].value, ast.Name)
        and statement.targets[0].value.id in ("ctx", "self")
    )


def judged(tree: ast.AST) -> dict[str, str]:
    return classes(ast.unparse(ast.fix_missing_locations(tree)))


samples = st.sampled_from(sorted(SAMPLES)).map(SAMPLES.__getitem__)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_the_samples_are_judged_as_they_should_be(name: str) -> None:
    assert judged(tree_of(SAMPLES[name])) == SAMPLES[name].expected


@settings(max_examples=40)
@given(samples, st.randoms(use_true_random=False))
def test_new_names_change_nothing(sample: Sample, rng: random.Random) -> None:
    tree = tree_of(sample)
    names = own_names(tree)
    fresh = rng.sample([*LIES, *(f"name_{number}" for number in range(20))], len(names))
    table = dict(zip(names, fresh, strict=True))
    found = judged(Renamer(table).visit(tree))
    assert found == {table[field]: cls for field, cls in sample.expected.items()}


@settings(max_examples=25)
@given(samples, st.randoms(use_true_random=False))
def test_the_order_of_independent_statements_changes_nothing(sample: Sample, rng: random.Random) -> None:
    tree = tree_of(sample)
    forward = main_forward(tree)
    kept = [s for s in forward.body if keeps(s)]
    first = min(forward.body.index(s) for s in kept)
    others = [s for s in forward.body if s not in kept]
    rng.shuffle(kept)
    forward.body = [*others[:first], *kept, *others[first:]]
    assert judged(tree) == sample.expected


@settings(max_examples=25)
@given(samples, st.data())
def test_a_branch_that_is_always_taken_changes_nothing(sample: Sample, data: st.DataObject) -> None:
    tree = tree_of(sample)
    body = main_forward(tree).body
    start = data.draw(st.integers(0, len(body) - 2))
    stop = data.draw(st.integers(start + 1, len(body) - 1))
    body[start:stop] = [ast.If(ast.Constant(True), body[start:stop], [])]
    assert judged(tree) == sample.expected


class Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def visit_Name(self, node: ast.Name) -> None:
        self.names[node.id] = None


def read_by(node: ast.AST) -> list[str]:
    reader = Reader()
    reader.visit(node)
    return list(reader.names)


@settings(max_examples=25)
@given(samples, st.data())
def test_moving_an_expression_into_a_helper_changes_nothing(sample: Sample, data: st.DataObject) -> None:
    tree = tree_of(sample)
    forward = main_forward(tree)
    module_names = {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    shared = module_names | set(PRELUDE.replace(",", " ").split()) | {"tl"}
    candidates = [
        s
        for s in forward.body
        if isinstance(s, ast.Assign) and "self" not in read_by(s.value) and "ctx" not in read_by(s.value)
    ]
    statement = data.draw(st.sampled_from(candidates))
    names = [name for name in read_by(statement.value) if name not in shared]
    deep = data.draw(st.booleans())
    given_ = ", ".join(names)
    helpers = f"def moved({given_}):\n    return {ast.unparse(statement.value)}\n"
    if deep:
        helpers += f"def further({given_}):\n    done = moved({given_})\n    return done\n"
    statement.value = ast.parse(f"{'further' if deep else 'moved'}({given_})", mode="eval").body
    tree.body = [*ast.parse(helpers).body, *tree.body]
    assert judged(tree) == sample.expected


def test_writing_a_helper_out_changes_nothing() -> None:
    source = textwrap.dedent(SAMPLES["norm"].source).replace(
        "        centre, scale = statistics(data, small)\n",
        "        centre = data.mean(-1, keepdim=True)\n"
        "        spread = ((data - centre) ** 2).mean(-1, keepdim=True)\n"
        "        scale = torch.rsqrt(spread + small)\n",
    )
    assert "statistics(data" not in source
    assert classes(source) == SAMPLES["norm"].expected


@settings(max_examples=25)
@given(samples, st.data())
def test_annotations_that_say_what_the_code_shows_change_nothing(sample: Sample, data: st.DataObject) -> None:
    tree = tree_of(sample)
    for parameter in main_forward(tree).args.args:
        if parameter.arg in sample.types and data.draw(st.booleans()):
            form = data.draw(st.sampled_from(["{}", "Optional[{}]", "{} | None", "'{}'"]))
            parameter.annotation = ast.parse(form.format(sample.types[parameter.arg]), mode="eval").body
    assert judged(tree) == sample.expected
