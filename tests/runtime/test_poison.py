"""Poison for any torch code: each way of keeping a tensor for backward, beside the same code under the contract."""

from __future__ import annotations

import copy
import gc
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from cachelint.runtime import Node, Parameter, Persistent, SaverAware
from cachelint.runtime.poison import Pattern, Poison, PoisonError, Proof, prove
from cachelint.runtime.poison_fill import contents, overwrite, restore


def make(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def function(forward: Any, backward: Any) -> type[Function]:
    """A custom Function of two plain functions."""
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Made", (Function,), members)


def paths(proof: Proof) -> list[str]:
    return sorted(hazard.held.path for hazard in proof.hazards)


# ---- custom Functions ------------------------------------------------------------------------------------------------


class Kept(Function):
    """An intermediate on ctx, and a dead one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        e = x.exp()
        ctx.e = e + 0
        ctx.dead = e.sin()
        ctx.n = 3
        return e

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * ctx.e


class Saved(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        e = x.exp()
        ctx.save_for_backward(e)
        return e

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (e,) = ctx.saved_tensors
        return grad * e


def test_an_intermediate_on_ctx_is_proven_and_a_dead_one_is_not() -> None:
    proof = prove(Kept, make(4, 5))
    assert not proof.ok
    assert paths(proof) == ["Kept: ctx.e"]
    (hazard,) = proof.hazards
    assert (hazard.effect, hazard.gradients, hazard.held.kind) == ("nan", ("input 0",), "intermediate")
    assert hazard.held.made is not None
    assert hazard.held.made.line is not None
    assert hazard.held.made.line.text == "ctx.e = e + 0"
    assert [held.path for held in proof.harmless] == ["Kept: ctx.dead"]
    assert torch.equal(proof.before["input 0"].isnan(), torch.zeros(4, 5, dtype=torch.bool))
    assert bool(proof.after["input 0"].isnan().all())


def test_the_same_under_the_contract_is_clean_and_right() -> None:
    x = make(4, 5)
    proof = prove(Saved, x)
    assert proof.ok
    assert proof.registered == 1
    assert torch.equal(proof.before["input 0"], proof.after["input 0"])
    proof.raise_if_hazard()
    with pytest.raises(AssertionError, match=r"ctx\.e"):
        prove(Kept, x).raise_if_hazard()


def test_an_output_on_ctx() -> None:
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.y = x.exp()
        return ctx.y

    proof = prove(function(forward, lambda ctx, grad: grad * ctx.y), make(3))
    assert [(h.held.kind, h.held.path) for h in proof.hazards] == [("output", "Made: ctx.y")]


def test_an_input_on_ctx_and_the_caller_keeps_its_value() -> None:
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.x, ctx.w_shape = x, w.shape
        ctx.save_for_backward(w)
        return x * w

    def backward(ctx: Any, grad: Tensor) -> Any:
        (w,) = ctx.saved_tensors
        return grad * w, grad * ctx.x

    x, w = make(3), make(3, seed=1)
    before = x.clone(), w.clone()
    proof = prove(function(forward, backward), x, w)
    assert [(h.held.kind, h.held.path, h.gradients) for h in proof.hazards] == [("input", "Made: ctx.x", ("input 1",))]
    assert torch.equal(x, before[0])
    assert torch.equal(w, before[1])
    assert x.grad is None


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_stale_argument_of_relu_is_seen_whatever_its_sign(sign: float) -> None:
    """NaN compares false: where every element was negative, only the second pattern shows the read."""

    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = x
        return x.clamp(min=0)

    target = function(forward, lambda ctx, grad: grad * (ctx.x > 0))
    x = make(50).abs() * sign
    assert paths(prove(target, x)) == ["Made: ctx.x"]
    assert prove(target, x, patterns=[Pattern.NAN]).ok is (sign < 0)


def test_views_containers_closures_and_objects_on_ctx() -> None:
    @dataclass
    class Bag:
        t: Tensor

    def forward(ctx: Any, x: Tensor) -> Tensor:
        a, b, c, d, e = (x * n for n in range(1, 6))
        ctx.view = a.t()[1:]
        ctx.items = [1, {"b": b}]
        ctx.late = lambda: c
        ctx.bag = Bag(d)
        ctx.unread = (e,)
        return x.sum()

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        total = ctx.items[1]["b"] + ctx.late() + ctx.bag.t
        return grad * (total + ctx.view.sum())

    proof = prove(function(forward, backward), make(3, 3))
    wanted = ["Made: ctx.bag.t", "Made: ctx.items[1]['b']", "Made: ctx.late.<closure c>", "Made: ctx.view"]
    assert paths(proof) == wanted
    assert [held.path for held in proof.harmless] == ["Made: ctx.unread[0]"]


def test_integers_and_bools_are_overwritten_inside_their_range() -> None:
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.order = x.argsort(-1)
        ctx.mask = x > 0
        ctx.shape = x.shape
        return x.gather(-1, ctx.order) * ctx.mask

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch.zeros(ctx.shape).scatter(-1, ctx.order, grad * ctx.mask)

    proof = prove(function(forward, backward), make(4, 6))
    assert paths(proof) == ["Made: ctx.mask", "Made: ctx.order"]
    assert {hazard.effect for hazard in proof.hazards} == {"changed"}


def test_several_and_non_tensor_outputs() -> None:
    def forward(ctx: Any, x: Tensor) -> Any:
        values, places = x.max(-1)
        ctx.mark_non_differentiable(places)
        ctx.places, ctx.shape = places, x.shape
        return values, places, "host", None

    def backward(ctx: Any, grad: Tensor, *_: Any) -> Tensor:
        return torch.zeros(ctx.shape).scatter(-1, ctx.places[..., None], grad[..., None])

    proof = prove(function(forward, backward), make(4, 6))
    assert [(h.held.kind, h.held.number, h.held.path) for h in proof.hazards] == [("output", 1, "Made: ctx.places")]


def test_in_place_on_an_input() -> None:
    def forward(ctx: Any, x: Tensor, keep: bool) -> Tensor:
        x.exp_()
        ctx.mark_dirty(x)
        if keep:
            ctx.y = x
        else:
            ctx.save_for_backward(x)
        return x

    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad * (ctx.y if hasattr(ctx, "y") else ctx.saved_tensors[0]), None

    target = function(forward, backward)
    assert prove(target, make(5), False).ok
    proof = prove(target, make(5), True)
    assert [(h.held.kind, h.held.path) for h in proof.hazards] == [("input", "Made: ctx.y")]
    upstream = (proof.before["input 0"] / make(5).exp()).abs()  # the derivative is right, up to a gradient in [0.25, 1]
    assert bool(((upstream > 0.249) & (upstream < 1.001)).all())


def test_backward_that_raises_on_poison() -> None:
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.norm = x.norm()
        return x / ctx.norm

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        if not bool(ctx.norm.isfinite()):
            raise ValueError("norm is not finite")
        return grad / ctx.norm

    (hazard,) = prove(function(forward, backward), make(5)).hazards
    assert (hazard.effect, hazard.detail) == ("raised", "ValueError: norm is not finite")


def test_setup_context_form() -> None:
    class Split(Function):
        @staticmethod
        def forward(x: Tensor) -> tuple[Tensor, Tensor]:
            e = x.exp()
            return e.sin(), e

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.e = output[1]
            ctx.mark_non_differentiable(output[1])

        @staticmethod
        def backward(ctx: Any, grad: Tensor, _: Any) -> Tensor:
            return grad * ctx.e.cos() * ctx.e

    assert paths(prove(Split, make(4))) == ["Split: ctx.e"]


def test_an_operator_with_registered_autograd() -> None:
    @torch.library.custom_op("cachelint_test::expo", mutates_args=())
    def expo(x: Tensor) -> Tensor:
        return x.exp()

    def setup(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.y = output

    expo.register_autograd(lambda ctx, grad: grad * ctx.y, setup_context=setup)
    (hazard,) = prove(expo, make(4)).hazards
    assert hazard.held.kind == "output"
    assert hazard.held.path.endswith("ctx.y")


def test_dropout_masks_draw_the_same_in_every_run() -> None:
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mask = torch.rand_like(x) > 0.5
        return x * ctx.mask

    state = torch.get_rng_state()
    proof = prove(function(forward, lambda ctx, grad: grad * ctx.mask), make(200), seed=5)
    assert paths(proof) == ["Made: ctx.mask"]
    assert torch.equal(torch.get_rng_state(), state)
    assert prove(nn.Dropout(), make(200)).ok


def test_a_value_that_somebody_else_registers_counts_as_kept() -> None:
    """The output is saved by exp downstream: its storage is pinned, whoever reads it."""

    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.y = x.sin()
        return ctx.y

    target = function(forward, lambda ctx, grad: grad * ctx.y)
    assert not prove(target, make(4)).ok
    assert prove(lambda x: target.apply(x).square(), make(4)).ok


# ---- modules and functions under autograd ----------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self, inner: type[Function] = Saved) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, 2)
        self.inner = inner
        self.cache: Any = None

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.first(x))
        self.cache = [h]
        return self.last(self.inner.apply(h).sin())


def test_a_module_is_copied_and_its_parameters_are_named() -> None:
    net = Net()
    state = copy.deepcopy(net.state_dict())
    proof = prove(net, make(8, 6))
    assert proof.ok
    names = {"input 0", *(f"self.{name}" for name, _ in net.named_parameters())}
    assert set(proof.before) == names
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert net.cache is None
    assert [held.path for held in proof.harmless] == ["self.cache[0]"]


def test_the_function_inside_a_module_is_found() -> None:
    proof = prove(Net(Kept), make(8, 6))
    assert paths(proof) == ["Kept: ctx.e"]
    assert "self.last.weight" not in proof.hazards[0].gradients
    assert {"input 0", "self.first.weight"} <= set(proof.hazards[0].gradients)


def test_gradients_are_those_of_plain_autograd() -> None:
    net, x = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 4)), make(3, 6)
    proof = prove(net, x)
    leaf = x.clone().requires_grad_()
    out = net(leaf)
    from cachelint.runtime.subject import upstream

    out.backward(upstream([out], 7919)[0])
    torch.testing.assert_close(proof.before["input 0"], leaf.grad)
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(proof.before[f"self.{name}"], parameter.grad)


def test_parameters_of_a_captured_module_keep_their_gradients() -> None:
    layer = nn.Linear(4, 3)
    layer.weight.grad = torch.ones(3, 4)
    proof = prove(lambda x: layer(x).sin(), make(2, 4))
    assert proof.ok
    assert torch.equal(layer.weight.grad, torch.ones(3, 4))
    assert layer.bias.grad is None
    assert any(name.endswith("weight") for name in proof.before)


def test_common_modules_are_clean() -> None:
    modules: list[tuple[nn.Module, tuple[Tensor, ...]]] = [
        (nn.Conv2d(2, 3, 3), (make(2, 2, 5, 5),)),
        (nn.LSTM(4, 3), (make(5, 2, 4),)),
        (nn.MultiheadAttention(8, 2), (make(3, 2, 8), make(3, 2, 8), make(3, 2, 8))),
        (nn.TransformerEncoderLayer(8, 2, 16), (make(3, 2, 8),)),
        (nn.Embedding(10, 4), (torch.tensor([[1, 2], [3, 3]]),)),
        (nn.GroupNorm(2, 4), (make(2, 4, 5),)),
    ]
    for module, inputs in modules:
        proof = prove(module, *inputs)
        assert proof.ok, (module, proof.hazards)
        assert proof.registered


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant: bool) -> None:
    layer = nn.Linear(4, 4)

    def run(inner: type[Function]) -> Any:
        def body(x: Tensor) -> Tensor:
            return inner.apply(layer(x)).sin()

        return lambda x: checkpoint(body, x.sin(), use_reentrant=reentrant)

    assert prove(run(Saved), make(3, 4)).ok
    # A reentrant checkpoint runs forward again inside backward: what that keeps on ctx never waits for backward.
    assert prove(run(Kept), make(3, 4)).ok is reentrant


def test_hooks_that_are_installed_already() -> None:
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> tuple[str, Tensor]:
        packed.append(tensor)
        return "copy", tensor.detach().clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value[1]):
        assert prove(Saved, make(4)).ok
        assert paths(prove(Kept, make(4))) == ["Kept: ctx.e"]
    assert packed


def test_hooks_that_the_code_installs_itself() -> None:
    def offloaded(inner: type[Function]) -> Any:
        def run(x: Tensor) -> Tensor:
            with torch.autograd.graph.save_on_cpu():
                return inner.apply(x.sin()).cos()

        return run

    push = torch._C._autograd._push_saved_tensors_default_hooks
    assert prove(offloaded(Saved), make(4)).ok
    assert paths(prove(offloaded(Kept), make(4))) == ["Kept: ctx.e"]
    assert torch._C._autograd._push_saved_tensors_default_hooks is push
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


@pytest.mark.parametrize("around", [False, True])
def test_autocast(around: bool) -> None:
    net = Net(Kept)

    def run(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net(x)

    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=around):
        assert paths(prove(run, make(8, 6))) == ["Kept: ctx.e"]
        net.inner = Saved
        assert prove(run, make(8, 6)).ok


def test_the_second_derivative() -> None:
    class Cube(Function):
        """The second derivative needs what backward itself computes, which is kept on ctx here."""

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return Slope.apply(x, grad)

    class Slope(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, grad: Tensor) -> Tensor:
            ctx.slope = 6 * x * grad
            return 3 * x**2 * grad

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Any:
            return grad * ctx.slope, None

    x = make(4)
    assert prove(Cube, x).ok
    proof = prove(Cube, x, order=2)
    assert [(h.held.path, h.gradients) for h in proof.hazards] == [
        ("Slope: ctx.slope", ("second derivative, input 0",))
    ]
    assert prove(torch.sin, x, order=2).ok


# ---- layers with a hand-written backward -----------------------------------------------------------------------------


class Softmax(SaverAware, Node):
    """In contract form: keeps its handle, registers the storage."""

    registers = True

    def forward(self, x: Tensor) -> Tensor:
        y = torch.softmax(x, -1)
        self.output = y
        if self.registers:
            self.save_for_backward(y)
        return y

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        y = self.output
        return (y * (grad - (grad * y).sum(-1, keepdim=True)),)


class Square(Node):
    """Prefers its stale input when no live input comes."""

    def forward(self, x: Tensor) -> Tensor:
        self.last_input = x
        return x * x

    def backward(self, grad: Tensor, *inputs: Tensor) -> tuple[Tensor]:
        x = inputs[0] if inputs else self.last_input
        return (2 * x * grad,)


class Both(Node):
    """Composite: a parameter, and two children, one of which registers."""

    def __init__(self, registers: bool) -> None:
        self.gain = Parameter(make(5), "gain")
        self.soft = Softmax()
        self.soft.registers = registers
        self.square = Square()

    def forward(self, x: Tensor) -> Tensor:
        self.scaled = x * self.gain.value
        return self.square.forward(self.soft.forward(self.scaled))

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        (grad,) = self.square.backward(grad, self.soft.output)
        (grad,) = self.soft.backward(grad, x * self.gain.value)
        self.gain.accumulate((grad * x).sum(0))
        return (grad * self.gain.value,)


def test_a_layer_that_registers_is_clean_and_one_that_does_not_is_not() -> None:
    layer, x = Softmax(), make(3, 5)
    assert prove(layer, x).ok
    layer.registers = False
    proof = prove(layer, x)
    assert [(h.held.kind, h.held.path) for h in proof.hazards] == [("output", "self.output")]
    assert not hasattr(layer, "output")
    assert layer.saver is None


def test_live_inputs_are_fresh_copies() -> None:
    assert prove(Square(), make(3, 5)).ok
    proof = prove(Square(), make(3, 5), live_inputs=False)
    assert [(h.held.kind, h.held.path) for h in proof.hazards] == [("input", "self.last_input")]


@pytest.mark.parametrize("registers", [True, False])
def test_children_get_the_saver_and_parameter_gradients_are_compared(registers: bool) -> None:
    proof = prove(Both(registers), make(3, 5))
    assert set(proof.before) == {"input 0", "self.gain.grad"}
    assert paths(proof) == ([] if registers else ["self.soft.output"])
    if not registers:
        assert proof.hazards[0].gradients == ("input 0", "self.gain.grad")
    assert "self.scaled" in [held.path for held in proof.harmless]


def test_a_layer_is_right_by_autograd_through_its_forward() -> None:
    node, x = Both(True), make(3, 5)
    by_hand, by_autograd = prove(node, x), prove(node, x, autograd=True)
    torch.testing.assert_close(by_hand.before["input 0"], by_autograd.before["input 0"])


def test_a_module_with_a_backward_that_takes_the_gradient_alone() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(make(5))

        def forward(self, x: Tensor) -> Tensor:
            self.kept = (x * 1, x.sin())
            return x * self.w

        def backward(self, grad: Tensor) -> Tensor:
            self.grad_w = (grad * self.kept[0]).sum(0)
            return grad * self.w

    proof = prove(Scale(), make(3, 5))
    assert set(proof.before) >= {"input 0", "self.grad_w"}
    assert [(h.held.path, h.gradients) for h in proof.hazards] == [("self.kept[0]", ("self.grad_w",))]


def test_a_backward_that_takes_the_first_inputs_alone() -> None:
    class Weighted(Node):
        def forward(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
            self.scale = scale
            return x * scale + shift

        def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return grad * self.scale, (grad * x).sum(0), grad.sum(0)

    proof = prove(Weighted(), make(3, 5), make(5), make(5))
    assert [(h.held.path, h.gradients) for h in proof.hazards] == [("self.scale", ("input 0",))]


def test_several_outputs_of_a_layer() -> None:
    class Halves(Node):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            self.e = x.exp()
            return self.e.sin(), x[0] * 2

        def backward(self, grad: tuple[Tensor, Tensor], x: Tensor) -> tuple[Tensor]:
            out = grad[0] * self.e.cos() * self.e
            out[0] += 2 * grad[1]
            return (out,)

    assert paths(prove(Halves(), make(3, 5))) == ["self.e"]


def test_a_cache_that_outlives_the_step_is_tested_in_every_run() -> None:
    class Lazy(Node):
        def __init__(self) -> None:
            self.table: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.table is None:
                self.table = torch.arange(5.0) + 1
            return x * self.table

        def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
            assert self.table is not None
            return (grad * self.table,)

    assert paths(prove(Lazy(), make(3, 5))) == ["self.table"]


def test_persistent_memory_is_under_the_contract() -> None:
    class Table(Node):
        def __init__(self) -> None:
            self.table = Persistent(name="table")

        def forward(self, x: Tensor) -> Tensor:
            return x * self.table.fetch(lambda: torch.arange(5.0) + 1)

        def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
            table = self.table.get()
            assert table is not None
            return (grad * table,)

    proof = prove(Table(), make(3, 5))
    assert (proof.ok, proof.registered) == (True, 1)


def test_what_was_overwritten_comes_back() -> None:
    seen: list[Tensor] = []

    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.e = x.exp()
        seen.append(ctx.e)
        return ctx.e * 1

    assert not prove(function(forward, lambda ctx, grad: grad * ctx.e), make(4)).ok
    assert len(seen) > 3
    assert all(torch.equal(each, make(4).exp()) for each in seen)


def test_a_layer_that_can_not_be_copied_is_tested_all_the_same() -> None:
    class Stubborn(Square):
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("no copies")

    layer = Stubborn()
    proof = prove(layer, make(3, 5), live_inputs=False)
    assert paths(proof) == ["self.last_input"]
    assert "no copies" in proof.notes[0]
    assert bool(layer.last_input.isfinite().all())


# ---- refusals, and what must not be touched --------------------------------------------------------------------------


def test_refusals_say_why() -> None:
    with pytest.raises(PoisonError, match="meta device"):
        prove(torch.sin, torch.ones(3, device="meta"))
    with pytest.raises(PoisonError, match="nothing to differentiate"):
        prove(lambda x: x.argmax(), make(3))
    with pytest.raises(PoisonError, match="fails without poison: RuntimeError"):
        prove(nn.Linear(3, 4), make(5))
    with pytest.raises(TypeError, match="give an instance"):
        prove(nn.Linear, make(5))
    with pytest.raises(PoisonError, match="no second derivative"):
        prove(Softmax(), make(3), order=2)


def test_memory_of_numpy_is_left_alone() -> None:
    table = np.ones(4, dtype=np.float32)
    seen: list[float] = []

    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.table = torch.from_numpy(table)
        return x * ctx.table

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        seen.append(float(table[0]))
        return grad * ctx.table

    assert prove(function(forward, backward), make(4)).ok
    assert set(seen) == {1.0}


def test_nothing_is_left_over() -> None:
    gc.collect()
    before = sum(isinstance(each, Tensor) for each in gc.get_objects())
    prove(Kept, make(4, 5))
    prove(Both(False), make(3, 5))
    gc.collect()
    assert sum(isinstance(each, Tensor) for each in gc.get_objects()) <= before + 1


def test_as_a_context_manager() -> None:
    x = make(4).requires_grad_()
    kept: list[Tensor] = []
    with Poison() as poison:
        y = Kept.apply(x)
        kept.append(torch.ones(3))
        struck = poison.strike(y)
        assert bool(kept[0].isnan().all())
        y.sum().backward()
    assert sorted(held.path for held in struck) == ["", "Kept: ctx.dead", "Kept: ctx.e"]
    assert poison.struck == struck
    assert bool(x.grad.isnan().all())
    assert torch.equal(kept[0], torch.ones(3))
    torch.testing.assert_close(y, x.exp())


def test_the_context_manager_on_a_layer_and_on_inputs() -> None:
    layer, x = Square(), make(3, 5)
    live = x.clone()
    with Poison(x, pattern=Pattern.WRONG) as poison, torch.no_grad():
        y = layer.forward(x)
        struck = poison.strike(y, receivers=[layer], ends=True)
        stale = layer.backward(torch.ones_like(x))[0]
        fresh = layer.backward(torch.ones_like(x), live)[0]
    assert [(held.kind, held.path) for held in struck] == [("input", "Square.last_input"), ("output", "")]
    torch.testing.assert_close(stale, 2 * (-live - 1))
    torch.testing.assert_close(fresh, 2 * live)
    assert torch.equal(x, live)
    torch.testing.assert_close(y, live**2)


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.float8_e4m3fn]
INTEGERS = [torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=40),
    st.sampled_from(DTYPES + INTEGERS),
    st.sampled_from(list(Pattern)),
)
def test_every_storage_changes_stays_in_range_and_comes_back(
    values: list[int], dtype: torch.dtype, pattern: Pattern
) -> None:
    tensor = torch.tensor(values).to(dtype)
    bits = contents(tensor.untyped_storage()).clone()
    original = tensor.clone()
    old = overwrite(tensor.untyped_storage(), tensor.dtype, pattern)
    assert not torch.equal(contents(tensor.untyped_storage()), bits)
    if dtype in INTEGERS and len({*original.tolist()}) > 1:
        assert {*tensor.tolist()} <= {*original.tolist(), True, False}
    if dtype in DTYPES and pattern is Pattern.NAN:
        assert bool(tensor.float().isnan().all() if not dtype.is_complex else tensor.isnan().all())
    if dtype in DTYPES and pattern is Pattern.WRONG:
        assert not bool(tensor.to(torch.complex64).isnan().any())
    restore(tensor.untyped_storage(), old)
    assert torch.equal(contents(tensor.untyped_storage()), bits)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda() -> None:
    x = make(4, 5).cuda()
    assert paths(prove(Kept, x)) == ["Kept: ctx.e"]
    assert prove(Saved, x).ok
    assert prove(Net().cuda(), make(8, 6).cuda()).ok
