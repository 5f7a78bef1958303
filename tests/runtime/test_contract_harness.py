"""The harness on layers with one planted fault each: it goes red on the fault and stays green beside it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from toy_layers import Add, Exp, LeakyExp, Mul, Scale, Sines

from cachelint.runtime import Node, Persistent, SaverAware, UseAfterReset
from cachelint.runtime.harness import (
    Example,
    Outcome,
    by_autograd,
    compare,
    gradcheck,
    overwritten,
    plain,
    recorded,
    relative_error,
    two_steps,
    under_reset,
    upstream,
    worst,
)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def of(make: Any, device: str = "cpu", inputs: int = 1) -> Example:
    def example(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        return make().to(device), tuple(drawn(seed + 100 * i, 2, 3).to(device) for i in range(inputs))

    return example


class AliasOfInput(Node):
    """H1: keeps its input and ignores the live one."""

    def forward(self, x: Tensor) -> Tensor:
        self.last_input = x
        return torch.sin(x)

    def backward(self, grad: Tensor, *inputs: Tensor) -> tuple[Tensor]:
        return (grad * torch.cos(self.last_input),)


class LiveInput(Node):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        return (grad * torch.cos(x),)


class StaleAfterOneStep(Node):
    """H7: the second forward leaves the first one's value in place."""

    def __init__(self) -> None:
        self.kept: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = torch.cos(x)
        return torch.sin(x)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        assert self.kept is not None
        return (grad * self.kept,)


class StaleReLU(Node):
    """NaN compares false: the gradient of a poisoned ReLU input is finite, and wrong."""

    def forward(self, x: Tensor) -> Tensor:
        self.kept = x * 1
        return torch.relu(x)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        return (grad * (self.kept > 0),)


class WrongFormula(Exp):
    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        assert self.output is not None
        return (grad * self.output * 1.01,)


class HiddenByChild(Node):
    """H9 and H10: the state lies in a child, which registers it only if the saver reaches it."""

    def __init__(self) -> None:
        self.parts = {"inner": [Exp(), Sines()]}

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.parts["inner"]
        self.middle = first.forward(x)
        result: Tensor = second.forward(self.middle)
        return result

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        first, second = self.parts["inner"]
        (middle,) = second.backward(grad, x)  # Sines reads what it saved, not its input
        found: tuple[Tensor] = first.backward(middle, x)
        return found


class SubView(SaverAware, Node):
    """H16: only a piece of the storage is saved; the pin goes to the owner."""

    def forward(self, x: Tensor) -> Tensor:
        block = torch.cat([torch.cos(x), x * 0], -1)
        self.piece = block[..., : x.shape[-1]]
        self.save_for_backward(self.piece)
        return torch.sin(x)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        return (grad * self.piece,)


class CrossStep(Node):
    """H11: a state that has to outlive the reset; ``keeper`` says whether anything pins it."""

    def __init__(self, persistent: bool) -> None:
        self.state: Persistent | None = Persistent() if persistent else None
        self.bare: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        before = self.bare if self.state is None else self.state.get()
        y = x * 2 if before is None else x * 2 + before
        self.bare = y.sum() if self.state is None else self.state.set(y.sum())
        return y

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        return (grad * 2,)


@pytest.mark.parametrize("make", [Exp, Sines, LiveInput, HiddenByChild, SubView, lambda: Scale(drawn(9, 1, 3))])
@pytest.mark.parametrize("in_arena", [False, True])
def test_a_layer_in_contract_form_is_unchanged_under_reset(device: str, make: Any, in_arena: bool) -> None:
    example = of(make, device)
    for steps in (1, 2):
        trial = under_reset(example, inputs_in_arena=in_arena, steps=steps, on_stale="raise")
        assert trial.error is None
        want = plain(example) if steps == 1 else two_steps(example).second
        assert worst(trial.outcome, want) == 0.0
        assert trial.pins_left == 0
    if in_arena or make is not LiveInput:
        assert under_reset(example, inputs_in_arena=True).pinned > 0  # the contract was really engaged


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (LeakyExp, "LeakyExp.output"),
        (HiddenByChild, "parts['inner'][1].parts['cos'][0]"),
        (StaleReLU, "StaleReLU.kept"),
    ],
)
def test_a_cache_without_a_saver_is_red(device: str, make: Any, field: str) -> None:
    example = of(make, device)
    trial = under_reset(example, with_saver=False)
    assert worst(trial.outcome, plain(example)) > 1e-3
    named = under_reset(example, with_saver=False, on_stale="raise")
    assert isinstance(named.error, UseAfterReset)
    assert field in str(named.error)


def test_a_stale_relu_input_is_finite_and_wrong() -> None:
    trial = under_reset(of(StaleReLU))
    assert trial.outcome is not None
    (dx,) = trial.outcome.inputs
    assert dx is not None
    assert dx.isfinite().all()
    assert worst(trial.outcome, plain(of(StaleReLU))) > 0.1


def test_an_alias_of_an_input_shows_where_nobody_pins_the_input() -> None:
    example = of(AliasOfInput)
    assert worst(under_reset(example, inputs_in_arena=True).outcome, plain(example)) == 0.0
    assert worst(under_reset(example, inputs_in_arena=True, live=False).outcome, plain(example)) == float("inf")


def test_overwriting_the_input_tells_an_alias_from_a_copy_and_from_a_live_input() -> None:
    for make, matches_new in ((LiveInput, True), (AliasOfInput, True), (Exp, False), (StaleReLU, False)):
        found = overwritten(of(make))
        assert (worst(found.got.outcome, found.new, outputs=False) == 0.0) is matches_new
        assert (worst(found.got.outcome, found.old, outputs=False) == 0.0) is not matches_new


def test_two_steps_find_a_stale_value_that_one_step_does_not() -> None:
    steps = two_steps(of(StaleAfterOneStep))
    assert worst(steps.first, plain(of(StaleAfterOneStep))) == 0.0
    assert worst(steps.second, steps.fresh) > 1e-3
    fine = two_steps(of(Exp))
    assert worst(fine.second, fine.fresh) == 0.0


def test_two_steps_zero_the_parameter_gradients_between() -> None:
    steps = two_steps(of(lambda: Scale(drawn(9, 1, 3))))
    assert worst(steps.second, steps.fresh) == 0.0


def test_state_over_steps_needs_a_persistent() -> None:
    for persistent in (True, False):
        example = of(lambda persistent=persistent: CrossStep(persistent))
        trial = under_reset(example, steps=2)
        assert (worst(trial.outcome, two_steps(example).second) == 0.0) is persistent
        assert trial.pins_left == 0


def test_the_error_of_a_layer_is_the_result_of_the_trial() -> None:
    class Raises(Exp):
        def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
            raise IndexError("out of range")

    trial = under_reset(of(Raises))
    assert trial.outcome is None
    assert isinstance(trial.error, IndexError)
    assert trial.pins_left == 0
    assert worst(trial.outcome, plain(of(Exp))) == float("inf")


def test_recording_is_by_identity_in_order() -> None:
    recording = recorded(of(Sines))
    assert isinstance(recording.node, Sines)
    assert [id(t) for t in recording.saved] == [id(t) for t in recording.node.parts["cos"]]
    assert recording.node.saver is None
    assert recorded(of(LiveInput)).saved == ()


def test_training_and_eval_can_be_chosen() -> None:
    class Modal(SaverAware, Node):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.save_for_backward(x)
            return x * 1

        def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
            return (grad,)

    assert len(recorded(of(Modal), training=True).saved) == 1
    assert len(recorded(of(Modal), training=False).saved) == 0


def test_random_layers_draw_the_same_each_time() -> None:
    class Noise(SaverAware, Node):
        def forward(self, x: Tensor) -> Tensor:
            self.noise = torch.rand_like(x)
            self.save_for_backward(self.noise)
            return x * self.noise

        def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
            return (grad * self.noise,)

    before = torch.random.get_rng_state()
    assert worst(under_reset(of(Noise)).outcome, plain(of(Noise))) == 0.0
    assert worst(plain(of(Noise)), by_autograd(of(Noise))) < 1e-15
    assert worst(plain(of(Noise), 1), plain(of(Noise), 2)) > 0
    assert torch.equal(before, torch.random.get_rng_state())


# ---- against autograd


@pytest.mark.parametrize("make", [Exp, Sines, LiveInput, HiddenByChild, lambda: Scale(drawn(9, 1, 3))])
def test_autograd_agrees(device: str, make: Any) -> None:
    assert worst(plain(of(make, device)), by_autograd(of(make, device))) < 1e-14


def test_autograd_of_a_reference_formula() -> None:
    example = of(lambda: Scale(drawn(9, 1, 3)))
    right = by_autograd(example, lambda node, x: node.w.value * x)
    wrong = by_autograd(example, lambda node, x: node.w.value * x * 2)
    assert worst(plain(example), right) < 1e-15
    assert worst(plain(example), wrong) > 0.3
    assert [name for name, _ in right.parameters] == ["w"]


def test_autograd_of_several_inputs_and_of_a_reference_that_ignores_one() -> None:
    assert worst(plain(of(Mul, inputs=2)), by_autograd(of(Mul, inputs=2))) == 0.0
    ignoring = by_autograd(of(Add, inputs=2), lambda node, a, b: a * 1 + b.detach())
    assert ignoring.inputs[1] is None
    assert compare(plain(of(Add, inputs=2)), ignoring)[0].what == "input gradient 1"


def test_gradcheck_is_red_on_a_wrong_formula() -> None:
    assert gradcheck(of(Exp), second=True)
    assert gradcheck(of(lambda: Scale(drawn(9, 1, 3))), second=True)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(of(WrongFormula))


def test_the_second_derivative_differentiates_backward_itself() -> None:
    class Detached(Exp):
        def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
            return (grad * x.detach().exp(),)

    assert gradcheck(of(Detached))
    with pytest.raises(RuntimeError, match=r"Jacobian mismatch|not multiplied|requires grad"):
        gradcheck(of(Detached), second=True)


# ---- comparing


def test_relative_error() -> None:
    x = torch.tensor([3.0, 4.0])
    assert relative_error(x, x) == 0.0
    assert relative_error(x * 1.5, x) == pytest.approx(0.5)
    assert relative_error(x, x * 0) == 5.0
    assert relative_error(x * float("nan"), x) == float("inf")
    assert relative_error(x, x.reshape(1, 2)) == float("inf")
    assert relative_error(None, x) == float("inf")
    assert relative_error(None, x * 0) == 0.0
    assert relative_error(None, None) == 0.0


def test_a_missing_outcome_is_infinitely_far() -> None:
    assert compare(None, plain(of(Exp)))[0].error == float("inf")


def test_gradients_from_upstream_have_both_signs_and_are_the_same_each_time() -> None:
    outputs = (torch.zeros(50, 2), torch.zeros(3, dtype=torch.float64))
    first, again = upstream(outputs, 3), upstream(outputs, 3)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert first[0].abs().min() >= 0.25
    assert first[0].abs().max() <= 1.0
    assert 0 < int((first[0] > 0).sum()) < 100
    assert first[1].dtype is torch.float64


def test_an_outcome_is_a_copy() -> None:
    class Buffer(Exp):
        block = torch.zeros(2, 3, dtype=torch.float64)

        def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
            Buffer.block.copy_(grad)
            return (Buffer.block,)

    outcome: Outcome = plain(of(Buffer))
    kept = outcome.inputs[0]
    assert kept is not None
    before = kept.clone()
    Buffer.block.zero_()
    assert torch.equal(kept, before)
