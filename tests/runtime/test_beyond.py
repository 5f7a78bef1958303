"""What a migration missed elsewhere, twelve points: each red on the planted fault and green on our layers.

The hazards that are points of their own are in test_hazards.py; here they are tied to the layers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

import cachelint.runtime.harness as harness
import cachelint.runtime.span as spans
from cachelint.runtime import Arena, Builder, Node, Parameter, Persistent, SaverAware
from cachelint.runtime.evidence import specimens
from cachelint.runtime.harness import Example, gradcheck, plain, two_steps, under_reset, worst
from cachelint.runtime.hazard_table import HAZARDS
from cachelint.runtime.hazards import dynamic, findings, load, static
from cachelint.runtime.layers import table
from cachelint.runtime.layers.activations.gelu import Gelu
from cachelint.runtime.layers.activations.relu import ReLU
from cachelint.runtime.layers.attention import fused_sdpa, grouped_query_attention
from cachelint.runtime.layers.attention.scaled_dot_product_attention import ScaledDotProductAttention
from cachelint.runtime.layers.core import dense, variable_selection
from cachelint.runtime.layers.embeddings.rotary_positional_embedding import RotaryPositionalEmbedding
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.recurrent import simple_rnn
from cachelint.runtime.layers.ssm import mamba_block
from cachelint.runtime.layers.transformer import block

ROOT = Path(__file__).parents[2]
Made = tuple[Node, tuple[Tensor, ...]]


def legacy(name: str, maker: str = "example") -> Example:
    make = getattr(importlib.import_module(f"fixtures.legacy.{name}"), maker)
    return partial(make, device="cpu", dtype=torch.float64)


def hazard(name: str) -> tuple[dict[str, str], dict[str, str], set[str]]:
    """What the checks say of the planted fault and of the layer without it, and the codes of the linter."""
    one = next(hazard for hazard in HAZARDS if hazard.id == name)
    checks = ("reset", "two steps", "overwrite", "gradcheck", "graph")
    bad, good = (dict(zip(checks, dynamic(one, load(one), kind), strict=True)) for kind in ("legacy", "fixed"))
    return bad, good, set(static(all_findings()[one.fixture], fixed=False))


@cache
def all_findings() -> dict[str, list[dict[str, Any]]]:
    return findings(ROOT / "fixtures" / "hazards")


def is_green(example: Example, *, steps: int = 1) -> bool:
    trial = under_reset(example, steps=steps, inputs_in_arena=True)
    want = plain(example) if steps == 1 else two_steps(example).second
    return trial.error is None and worst(trial.outcome, want) <= 1e-9 and trial.pins_left == 0


# ---- 1: composites hide state in a child


def test_1_a_composite_that_looks_safe_corrupts() -> None:
    assert not is_green(legacy("attention.fused_sdpa"))
    assert is_green(fused_sdpa.example)
    bad, good, codes = hazard("H9")
    assert (bad["reset"], good["reset"]) == ("red", "green")
    assert "CL110" in codes


# ---- 2: a stale value of the step before


def steps_in_turn(node: Callable[[], Node]) -> Example:
    """A fused step without a mask after a step with one, or the other way round."""

    def example(seed: int) -> Made:
        init = Init.seeded(seed, dtype=torch.float64)
        q, k, v = init.normal(1, 2, 3, 4), init.normal(1, 2, 3, 4), init.normal(1, 2, 3, 4)
        return node(), (q, k, v) if seed % 2 else (q, k, v, torch.ones(3, 3, dtype=torch.bool).tril())

    return example


@pytest.mark.parametrize("first", [0, 1])
def test_2_no_attention_weights_of_the_step_before(first: int) -> None:
    class Stale(ScaledDotProductAttention):
        def forward(self, *inputs: Tensor) -> Tensor:
            before = self.output, self.logsumexp
            y = super().forward(*inputs)
            if self.output is None:
                self.output, self.logsumexp = before  # the planted fault: not cleared on this path
            return y

    class Alternating(ScaledDotProductAttention):
        """Takes the kernel without a mask alone, as the original did."""

        def _takes_kernel(self, q: Tensor, k: Tensor, v: Tensor) -> bool:
            return not self.masked

        def forward(self, *inputs: Tensor) -> Tensor:
            self.masked = len(inputs) == 4
            return super().forward(*inputs)

    class StaleAlternating(Alternating, Stale):
        pass

    ours = two_steps(steps_in_turn(Alternating), first)
    assert worst(ours.second, ours.fresh) == 0
    planted = two_steps(steps_in_turn(StaleAlternating), first)
    assert (worst(planted.second, planted.fresh) > 1e-3) == (first == 1)


# ---- 3: savers reach the whole tree


def wire_the_top_alone(root: object, saver: object) -> int:
    if isinstance(root, SaverAware):
        root.set_saver(saver)  # type: ignore[arg-type]
    return 1


def test_3_the_whole_tree_is_wired(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_green(block.example)
    graph_node, inputs = block.example()
    builder = Builder(arena := Arena(1 << 22, poison=True))
    graph = builder.build(builder.add(graph_node, builder.input("x")))
    graph.forward(*inputs)
    assert all(child.saver is not None for child in graph_node.nodes() if isinstance(child, SaverAware))
    graph.mark_step_boundary()
    assert arena.stats().pins == 0
    monkeypatch.setattr(harness, "wire", wire_the_top_alone)
    assert not is_green(block.example), "the planted fault: children inside the block stay unprotected"


# ---- 4: caches over steps


def test_4_persistent_state_survives_the_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_green(simple_rnn.example, steps=2)
    bad, good, _ = hazard("H11")
    assert bad["reset"] == "green, red in step 2"
    assert good["reset"] == "green"

    def forget_to_pin(self: Persistent, value: Tensor) -> Tensor:
        self._value = value
        return value

    monkeypatch.setattr(Persistent, "set", forget_to_pin)
    assert not is_green(simple_rnn.example, steps=2)


# ---- 5: callers that leave out live inputs or pass the wrong one


def test_5_a_composite_hands_its_child_the_childs_own_input() -> None:
    legacy_dense = importlib.import_module("fixtures.legacy.core.dense").Dense
    legacy_gelu = importlib.import_module("fixtures.legacy.activations.gelu").Gelu

    def composite(make: Callable[..., Node], activation: Callable[[], Node]) -> Example:
        def example(seed: int) -> Made:
            init = Init.seeded(seed, dtype=torch.float64)
            return make(3, 3, activation=activation(), init=init), (init.normal(2, 3),)

        return example

    assert gradcheck(composite(legacy_dense, legacy_gelu)), "the child's own cache hides the caller's mistake"
    with pytest.raises(GradcheckError):
        gradcheck(composite(legacy_dense, Gelu))
    assert gradcheck(composite(dense.Dense, Gelu))


def test_5_the_linter_finds_the_caller_that_leaves_live_inputs_out(tmp_path: Path) -> None:
    source = """
from cachelint.runtime import Node

class Square(Node):
    def forward(self, x):
        return x * x

    def backward(self, grad, x):
        return (2 * grad * x,)

class Caller(Node):
    def __init__(self):
        self.square = Square()

    def forward(self, x):
        return self.square.forward(x)

    def backward(self, grad, x):
        return self.square.backward(grad{operand})
"""
    for name, operand in (("h1_planted", ""), ("h2_right", ", x")):
        (tmp_path / f"{name}.py").write_text(source.format(operand=operand))
    found = findings(tmp_path)
    assert [f["code"] for f in found["h1_planted"]] == ["CL205"]
    assert found["h2_right"] == []


# ---- 6: the types that were left over


def test_6_every_legacy_type_has_its_migrated_form() -> None:
    ours = {mode.name.split(" (")[0] for mode in table.modes()}
    theirs = {one.name for one in specimens([ROOT / "fixtures" / "legacy"])}
    with_other_names = {"activations.BaseActivation"}  # ours are its subclasses, one module each
    assert {"activations.ReLU", "activations.Tanh", "activations.Erf"} <= ours
    assert theirs - with_other_names <= ours
    left_over = {"core.MoEGate", "hrm.HModule", "ssm.MambaBlock", "fp8.FP8Linear", "lora.LoraLinear", "nas.DARTSLayer"}
    assert not theirs - with_other_names <= ours - left_over, "a type that is not there shows"


# ---- 7: comparisons swallow NaN


def test_7_a_stale_relu_input_is_finite_and_wrong() -> None:
    node, (x,) = legacy("activations.base_activation")(0)
    arena = Arena(1 << 16, poison=True)
    with arena.place("allow"):
        node.forward(arena.move(x))
    arena.reset()
    grad = torch.ones_like(x)
    (dx,) = node.backward(grad, x)
    assert dx.isfinite().all(), "a check for NaN sees nothing"
    (want,) = ReLU().backward(grad, x)
    assert harness.relative_error(dx, want) > 0.1, "a comparison of values does"


# ---- 8: gradcheck sees no lifetime


def test_8_gradcheck_is_green_where_the_reset_is_red() -> None:
    maker = legacy("activations.softmax")
    assert gradcheck(maker)
    assert not is_green(maker)


def test_8_every_layer_runs_under_every_check() -> None:
    from tests.runtime.layers import test_follow_up_contract, test_layer_contract

    checked = {mode.name for module in (test_layer_contract, test_follow_up_contract) for mode in module.MODES}
    everything = {mode.name for mode in table.modes() if mode.package != "gdn"}
    assert everything <= checked
    for module in (test_layer_contract, test_follow_up_contract):
        for name in ("survives_reset_with_poison", "second_step_is_that_of_a_fresh_instance", "passes_gradcheck"):
            assert any(name in test for test in vars(module)), (module, name)


# ---- 9: pins go to the owning storage


class Halves(SaverAware, Node):
    """Keeps and registers two views of one storage, one of them twice."""

    def forward(self, x: Tensor) -> Tensor:
        self.a, self.b = torch.exp(x).chunk(2, -1)
        self.save_for_backward(self.a, self.b, self.b)
        return self.a * self.b

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        both = grad * self.a * self.b
        return (torch.cat([both, both], -1),)


def halves(seed: int) -> Made:
    return Halves(), (Init.seeded(seed, dtype=torch.float64).normal(2, 6),)


def test_9_views_pin_their_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_green(halves)
    pin = spans.pin
    monkeypatch.setattr(
        "cachelint.runtime.saver.pin", lambda t: pin(t) if t.untyped_storage().nbytes() == t.nbytes else None
    )
    assert not is_green(halves), "the planted fault: a view can't be pinned"


def test_9_one_storage_saved_twice_is_released_once_each() -> None:
    bad, good, _ = hazard("H17")
    assert (bad["reset"], good["reset"]) == ("red", "green")


# ---- 10: gradients outlive the step


class Scale(Node):
    def __init__(self) -> None:
        self.weight = Parameter(torch.full((3,), 2.0, dtype=torch.float64), "weight")

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight.value

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        self.weight.accumulate((grad * x).sum(0))
        return (grad * self.weight.value,)


class MovingScale(Scale):
    """The planted fault: the gradient is what backward made."""

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        found = (grad * x).sum(0)
        self.weight.grad = found if self.weight.grad is None else self.weight.grad + found
        return (grad * self.weight.value,)


def steps_of(node: Scale, count: int) -> tuple[Tensor, Arena, set[int]]:
    """The gradient after some steps with a reset after each, and the places where it lay."""
    arena = Arena(1 << 16, poison=True)
    builder = Builder(arena)
    graph = builder.build(builder.add(node, builder.input("x")))
    x = torch.ones(2, 3, dtype=torch.float64)
    places = set()
    for _ in range(count):
        graph.forward(x)
        graph.backward(torch.ones_like(x))
        assert node.weight.grad is not None
        places.add(node.weight.grad.data_ptr())
        arena.reset()
    return node.weight.grad, arena, places


def test_10_persistent_gradients_stay_out_of_the_arena() -> None:
    grad, arena, places = steps_of(Scale(), 3)
    assert grad.tolist() == [6.0] * 3
    assert not arena.owns(grad)
    assert len(places) == 1
    grad, arena, _ = steps_of(MovingScale(), 1)
    assert grad.isnan().all()
    assert arena.owns(grad)


# ---- 11: closures and containers are fields


@pytest.mark.parametrize(("name", "code"), [("H12", "CL106"), ("H18", "CL109")])
def test_11_closures_and_containers_are_fields(name: str, code: str) -> None:
    bad, good, codes = hazard(name)
    assert (bad["reset"], good["reset"]) == ("red", "green")
    assert code in codes


# ---- 12: formulas


def red(example: Example) -> bool:
    function, tensors = harness.as_function(example)
    try:
        return not torch.autograd.gradcheck(function, tensors, fast_mode=True)
    except GradcheckError:
        return True


def test_12_variable_selection_differentiates_its_gelu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not red(variable_selection.example)
    monkeypatch.setattr(variable_selection, "gelu_backward", lambda grad, x: grad)
    assert red(variable_selection.example)


def test_12_repeated_heads_are_summed_in_the_order_of_their_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    def grouped(heads: int, kv_heads: int) -> Example:
        def example(seed: int) -> Made:
            init = Init.seeded(seed, dtype=torch.float64)
            layer = grouped_query_attention.GroupedQueryAttention(8, heads, kv_heads, fused=False, init=init)
            return layer, (init.normal(1, 3, 8),)

        return example

    assert not red(grouped(4, 2))
    monkeypatch.setattr(
        grouped_query_attention,
        "sum_repeated",
        lambda x, times: x.reshape(x.shape[0], times, -1, *x.shape[2:]).sum(1),
    )
    assert red(grouped(4, 2))
    assert not red(grouped(2, 1)), "one key head does not tell the orders apart"


def test_12_the_scan_has_no_extra_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not red(mamba_block.example)
    right = mamba_block.selective_scan_backward

    def extra(grad: Tensor, s: mamba_block.Selection, *rest: object) -> mamba_block.Selection:
        found = right(grad, s, *rest)  # type: ignore[arg-type]
        return found._replace(a=found.a * s.a)

    monkeypatch.setattr(mamba_block, "selective_scan_backward", extra)
    assert red(mamba_block.example)


@pytest.mark.parametrize("offset", [0, 2])
def test_12_the_rotation_is_undone_at_its_offset(offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class FromZero(RotaryPositionalEmbedding):
        """The planted fault: backward rotates as if positions began at zero."""

        def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:  # type: ignore[override]
            (dx,) = RotaryPositionalEmbedding(self.rotary).backward(grad, x)
            return (dx,)

    x = Init.seeded(0, dtype=torch.float64).normal(2, 3, 4)
    assert not red(lambda seed: (RotaryPositionalEmbedding(offset=offset), (x,)))
    assert red(lambda seed: (FromZero(offset=offset), (x,))) == (offset > 0)
