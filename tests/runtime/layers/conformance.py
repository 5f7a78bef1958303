"""What every reference layer must do, each a function that raises AssertionError; the tests choose the layers."""

from collections.abc import Sequence
from operator import attrgetter

import torch

from cachelint.runtime.harness import (
    Outcome,
    as_function,
    by_autograd,
    overwritten,
    plain,
    recorded,
    run_backward,
    run_forward,
    two_steps,
    under_reset,
    upstream,
    worst,
)
from cachelint.runtime.layers.table import TOLERANCES, Mode, differences

EXACT = TOLERANCES[torch.float64]


def agrees_with_reference(mode: Mode, dtype: torch.dtype, seed: int, device: str = "cpu") -> None:
    """Outputs, input gradients and parameter gradients are those of autograd through the reference."""
    found = differences(mode, dtype, seed, device)
    assert found[0].error <= TOLERANCES[dtype], found


def passes_gradcheck(mode: Mode, seed: int = 0, *, second: bool = True) -> None:
    """Finite differences agree with backward, and with the derivative of backward."""
    function, tensors = as_function(mode.make, seed)
    if tensors:
        assert torch.autograd.gradcheck(function, tensors, fast_mode=True)
        assert not second or torch.autograd.gradgradcheck(function, tensors, fast_mode=True)


def keeps_nothing_over_steps(mode: Mode, seed: int = 0) -> None:
    """The second step on one instance is that of a fresh instance."""
    steps = two_steps(mode.make, seed)
    assert worst(steps.second, steps.fresh) == 0
    if any(tensor.numel() for tensor in steps.first.outputs):
        assert worst(steps.first, steps.fresh) > 0, "the two steps are the same, so the test sees nothing"


def accumulates(mode: Mode, seed: int = 0) -> None:
    """A second backward adds the same parameter gradients again, in the same buffers."""
    node, inputs = mode.make(seed)
    result = run_forward(node, inputs, seed)
    grads = upstream((result,), seed)
    once = run_backward(node, result, grads, inputs)
    used = [parameter for parameter in node.parameters() if parameter.grad is not None]
    buffers = [parameter.grad for parameter in used]
    first = [grad.clone() for grad in buffers]
    twice = run_backward(node, result, grads, inputs)
    for a, b in zip(once, twice, strict=True):
        assert (a is None and b is None) or torch.equal(a, b)
    for parameter, buffer, grad in zip(used, buffers, first, strict=True):
        assert parameter.grad is buffer
        torch.testing.assert_close(buffer, 2 * grad, rtol=0, atol=0)


def survives_reset(mode: Mode, seed: int = 0) -> None:
    """Reset and poison between forward and backward change nothing, and no pin is left."""
    want = two_steps(mode.make, seed).second
    for inputs_in_arena in (False, True):
        trial = under_reset(mode.make, seed, inputs_in_arena=inputs_in_arena, steps=2)
        assert trial.error is None, trial.error
        assert worst(trial.outcome, want) == 0
        assert trial.pins_left == 0


def registers(mode: Mode, paths: Sequence[str], seed: int = 0) -> None:
    """The saver sees exactly the tensors at ``paths``, by identity; without it a reset corrupts the layer."""
    recording = recorded(mode.make, seed, training=True)
    wanted = [tensor for path in paths if (tensor := attrgetter(path)(recording.node)) is not None]
    assert sorted(map(id, recording.saved)) == sorted(map(id, wanted))
    if paths:
        assert wanted
        assert under_reset(mode.make, seed, training=True).pinned > 0
        bare = under_reset(mode.make, seed, training=True, with_saver=False)
        assert worst(bare.outcome, plain(mode.make, seed, training=True)) > 1e-3


def registers_nothing_in_eval(mode: Mode, paths: Sequence[str], seed: int = 0) -> None:
    """In eval mode nothing is registered and nothing stays, not even what a training step left."""
    assert recorded(mode.make, seed, training=False).saved == ()
    node, inputs = mode.make(seed)
    run_forward(node.train(), inputs, seed)
    run_forward(node.eval(), inputs, seed)
    assert [path for path in paths if attrgetter(path)(node) is not None] == []


def follows_live_inputs(mode: Mode, seed: int = 0) -> None:
    """With the inputs overwritten between forward and backward the gradients are those of the new values."""
    trial = overwritten(mode.make, seed)
    assert trial.got.error is None, trial.got.error
    assert worst(trial.got.outcome, trial.new, outputs=False) <= EXACT


def agrees_with_legacy(mode: Mode, legacy, seed: int = 0) -> None:
    """The migrated layer gives what its pre-migration form gives, with the same parameters and inputs."""

    def like_legacy(seed: int):
        node, _ = mode.make(seed)
        old, inputs = legacy(seed)
        for ours, theirs in zip(node.parameters(), old.parameters(), strict=True):
            assert ours.value.shape == theirs.value.shape
            ours.value.copy_(theirs.value)
        return node, inputs

    got, want = plain(like_legacy, seed), plain(legacy, seed)
    assert worst(_unnamed(got), _unnamed(want)) <= EXACT


def _unnamed(outcome: Outcome) -> Outcome:
    """Parameters by their position: the two forms name them differently."""
    return Outcome(outcome.outputs, outcome.inputs, tuple((str(i), g) for i, (_, g) in enumerate(outcome.parameters)))


def matches(make, reference, seed: int = 0) -> None:
    """One float64 step of ``make(seed)`` against its reference, for shapes and options that no mode has.

    Some gradients are zero by mathematics there, so errors are relative to the largest tensor of the step.
    """
    got, want = _tensors(plain(make, seed)), _tensors(by_autograd(make, reference, seed))
    scale = max(float(tensor.norm()) for tensor in want if tensor is not None)
    for ours, theirs in zip(got, want, strict=True):
        if ours is None or theirs is None:
            assert not any(tensor is not None and tensor.any() for tensor in (ours, theirs))
        else:
            assert ours.shape == theirs.shape
            assert float((ours - theirs).norm()) <= EXACT * scale


def _tensors(outcome: Outcome) -> tuple[torch.Tensor | None, ...]:
    return (*outcome.outputs, *outcome.inputs, *(grad for _, grad in outcome.parameters))


def named(modes: Sequence[Mode]) -> dict[str, Mode]:
    """Modes by name."""
    return {mode.name: mode for mode in modes}
