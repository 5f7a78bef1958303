"""Trials of one layer: under reset and poison, over two steps, input overwritten, recorded, and against autograd.

Each trial makes its own node from an ``Example``, a function from a seed to a node and its inputs, so trials share
nothing. They give frozen results; ``compare`` says how far two of them lie apart. ``example(seed, device, dtype)`` of a
layer's module becomes an ``Example`` with ``functools.partial``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cachelint.runtime.arena import Arena
from cachelint.runtime.errors import UseAfterReset
from cachelint.runtime.node import Node
from cachelint.runtime.persistent import Persistent
from cachelint.runtime.placement import OnStale
from cachelint.runtime.saver import NodeSaver, RecordingSaver, SavedSets, wire
from cachelint.runtime.stale import located
from cachelint.runtime.walk import walk

Example = Callable[[int], tuple[Node, tuple[Tensor, ...]]]
Reference = Callable[..., Any]
ARENA_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one forward and backward gave, all copies: outputs, a gradient per input, a gradient per parameter path."""

    outputs: tuple[Tensor, ...]
    inputs: tuple[Tensor | None, ...]
    parameters: tuple[tuple[str, Tensor | None], ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """An outcome, or the error that stood in its way, with what the arena counted.

    ``pinned`` is the pinned high-water mark in bytes: positive shows that the contract was really engaged.
    ``pins_left`` counts the pins still there at the end, those of ``Persistent`` aside: zero where all was released.
    """

    outcome: Outcome | None
    error: Exception | None = None
    pinned: int = 0
    pins_left: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """How far one tensor lies from what was wanted: ‖got - want‖ / ‖want‖, infinite for NaN, a gap or another shape."""

    what: str
    error: float


@dataclass(frozen=True, slots=True)
class Steps:
    """Two steps on one instance, and the second one alone on a fresh instance."""

    first: Outcome
    second: Outcome
    fresh: Outcome


@dataclass(frozen=True, slots=True)
class Overwrite:
    """``got`` after the input buffers were overwritten between forward and backward; ``new`` from the new values alone.

    A layer that derives everything from its live inputs gives the gradients of ``new``; one that kept a copy, or saved
    an intermediate, gives something else.
    """

    got: Trial
    old: Outcome
    new: Outcome


@dataclass(frozen=True, slots=True)
class Recording:
    """What a layer registered in one forward, by identity, with the node that did and its output."""

    node: Node
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    saved: tuple[Tensor, ...]


# ---- comparing


def relative_error(got: Tensor | None, want: Tensor | None) -> float:
    """‖got - want‖ / ‖want‖ in float64, ‖got‖ where want is zero; infinite for NaN, another shape, or a missing one."""
    if got is None or want is None:
        present = got if want is None else want
        # No gradient means zero: a layer may give either.
        return 0.0 if present is None or not bool(present.any()) else float("inf")
    if got.shape != want.shape:
        return float("inf")
    wide = torch.complex128 if want.is_complex() else torch.float64
    a, b = got.detach().to(wide), want.detach().to(wide)
    scale = float(torch.linalg.vector_norm(b))
    distance = float(torch.linalg.vector_norm(a - b))
    error = distance / scale if scale > 0 else distance
    return error if error == error else float("inf")


def compare(got: Outcome | None, want: Outcome) -> tuple[Difference, ...]:
    """Each output, input gradient and parameter gradient of ``got`` beside ``want``, the largest difference first."""
    if got is None:
        return (Difference("outcome", float("inf")),)
    found = [
        Difference(f"{kind} {index}", relative_error(a, b))
        for kind, ours, theirs in (("output", got.outputs, want.outputs), ("input gradient", got.inputs, want.inputs))
        for index, (a, b) in enumerate(zip(ours, theirs, strict=True))
    ]
    theirs = dict(want.parameters)
    found += [Difference(f"parameter {name}", relative_error(grad, theirs[name])) for name, grad in got.parameters]
    return tuple(sorted(found, key=lambda difference: -difference.error))


def worst(got: Outcome | None, want: Outcome, *, outputs: bool = True) -> float:
    """The largest difference; ``outputs=False`` looks at gradients alone."""
    return max((d.error for d in compare(got, want) if outputs or not d.what.startswith("output")), default=0.0)


# ---- the parts of a step


def upstream(outputs: Sequence[Tensor], seed: int) -> tuple[Tensor, ...]:
    """A gradient for each output: magnitudes in [0.25, 1], random signs. The same for the same seed on any device."""
    generator = torch.Generator().manual_seed(seed + 7919)
    found = []
    for output in outputs:
        size = torch.rand(output.shape, generator=generator, dtype=torch.float64) * 0.75 + 0.25
        sign = torch.randint(0, 2, output.shape, generator=generator) * 2 - 1
        found.append((size * sign).to(output.device, output.dtype))
    return tuple(found)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random draws of the block come from ``seed``; the generators are as before afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def run_forward(node: Node, inputs: tuple[Tensor, ...], seed: int) -> Any:
    """``node.forward(*inputs)`` without recording, random draws from ``seed``."""
    with torch.no_grad(), seeded(seed):
        return node.forward(*inputs)


def run_backward(node: Node, result: Any, grads: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
    """``node.backward`` without recording; one gradient per input, or what the node gave.

    A backward that takes fewer live inputs than forward took gets the first of them.
    """
    with torch.no_grad():
        found = node.backward(grads if isinstance(result, tuple) else grads[0], *inputs[: _live_inputs_taken(node)])
    return tuple(found) if isinstance(found, tuple | list) else (found,)


def _live_inputs_taken(node: Node) -> int | None:
    """How many live inputs the node's backward has parameters for; None if it takes any number."""
    parameters = inspect.signature(node.backward).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return (
        sum(parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters)
        - 1
    )


def as_tuple(result: Any) -> tuple[Tensor, ...]:
    """The result of a forward as a tuple of tensors."""
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def outcome_of(
    node: Node, outputs: Sequence[Tensor], grads: Sequence[Tensor | None], inputs: tuple[Tensor, ...]
) -> Outcome:
    """Copies of everything; gradients that the layer left out at the end are None."""
    padded = [*grads, *[None] * (len(inputs) - len(grads))]
    return Outcome(
        _copies(outputs),
        tuple(None if grad is None else grad.detach().clone() for grad in padded),
        tuple((n, None if p.grad is None else p.grad.detach().clone()) for n, p in node.named_parameters()),
    )


def _copies(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(tensor.detach().clone() for tensor in tensors)


# ---- the trials


def plain(example: Example, seed: int = 0, *, live: bool = True, training: bool | None = None) -> Outcome:
    """One step in ordinary memory. ``live=False`` calls backward without the live inputs, as old callers did."""
    node, inputs = _made(example, seed, training)
    return _step(node, inputs, seed, live)


def _made(example: Example, seed: int, training: bool | None) -> tuple[Node, tuple[Tensor, ...]]:
    node, inputs = example(seed)
    if training is not None:
        node.train(training)
    return node, tuple(inputs)


def _step(node: Node, inputs: tuple[Tensor, ...], seed: int, live: bool = True) -> Outcome:
    result = run_forward(node, inputs, seed)
    outputs = _copies(as_tuple(result))
    grads = run_backward(node, result, upstream(outputs, seed), inputs if live else ())
    return outcome_of(node, outputs, grads, inputs)


def under_reset(
    example: Example,
    seed: int = 0,
    *,
    live: bool = True,
    training: bool | None = None,
    inputs_in_arena: bool = False,
    with_saver: bool = True,
    steps: int = 1,
    on_stale: OnStale = "allow",
    capacity: int = ARENA_BYTES,
) -> Trial:
    """Steps under an arena with poison, reset between forward and backward and after each step; gives the last step.

    The node and, by default, its inputs are ordinary memory; ``inputs_in_arena`` puts the inputs into the arena, pinned
    as a graph pins live inputs where backward gets them (``live``), left to the reset where it does not. A saver that
    pins is wired through the whole tree unless ``with_saver=False``. Step ``i`` has the inputs of ``seed + i``. Resets
    don't rewind, so that poison is not laid over by a backward that happens to repeat what forward did.
    ``on_stale="raise"`` turns a read of dead memory into an error that names the node and its field; ``"allow"`` lets
    the poison flow into the gradients.
    """
    node, inputs = _made(example, seed, training)
    device = next((tensor.device for tensor in inputs), torch.device("cpu"))
    arena = Arena(capacity, (device,), poison=True)
    sets = SavedSets()
    if with_saver:
        wire(node, NodeSaver(sets, "node"))
    outcome: Outcome | None = None
    error: Exception | None = None
    given: tuple[Tensor, ...] = inputs
    try:
        for step in range(steps):
            given = _made(example, seed + step, training)[1] if step else inputs
            node.zero_grad()
            outcome = _arena_step(node, given, seed + step, arena, sets, live, inputs_in_arena, on_stale)
    except UseAfterReset as stale:
        error = located(stale, type(node).__name__, node, given)
    except Exception as raised:  # whatever a layer raises on poisoned values is the trial's result
        error = raised
    finally:
        sets.release_all()
        wire(node, None)
        for _, value in walk(node):
            if isinstance(value, Persistent):  # its pins outlive the steps by design, not the trial
                value.invalidate()
    stats = arena.stats()
    return Trial(None if error else outcome, error, stats.pinned_high_water, stats.pins)


def _arena_step(
    node: Node,
    inputs: tuple[Tensor, ...],
    seed: int,
    arena: Arena,
    sets: SavedSets,
    live: bool,
    inputs_in_arena: bool,
    on_stale: OnStale,
) -> Outcome:
    if inputs_in_arena:
        inputs = tuple(arena.move(tensor) for tensor in inputs)
    pins = [arena.pin(tensor) for tensor in inputs] if live else []
    try:
        with arena.place(on_stale):
            result = run_forward(node, inputs, seed)
        outputs = _copies(as_tuple(result))
        arena.reset(rewind=False)
        with arena.place(on_stale):
            grads = run_backward(node, result, upstream(outputs, seed), inputs if live else ())
    finally:
        sets.release("node")
    try:
        return outcome_of(node, outputs, grads, inputs)
    finally:
        for span in pins:
            if span is not None:
                span.unpin()
        arena.reset(rewind=False)


def two_steps(example: Example, seed: int = 0, *, live: bool = True, training: bool | None = None) -> Steps:
    """Two steps with different inputs on one instance, gradients zeroed between, beside the second one on a fresh one.

    A layer without state over steps has ``second`` equal to ``fresh``.
    """
    node, inputs = _made(example, seed, training)
    later = _made(example, seed + 1, training)[1]
    first = _step(node, inputs, seed, live)
    node.zero_grad()
    second = _step(node, later, seed + 1, live)
    fresh = _step(_made(example, seed, training)[0], later, seed + 1, live)
    return Steps(first, second, fresh)


def overwritten(example: Example, seed: int = 0, *, training: bool | None = None) -> Overwrite:
    """One step whose input buffers get the values of ``seed + 1`` in place between forward and backward.

    The gradients wanted of a layer that keeps nothing are those of the new values (``new``).
    """
    node, inputs = _made(example, seed, training)
    fresh, later = _made(example, seed, training)[0], _made(example, seed + 1, training)[1]
    old = _step(_made(example, seed, training)[0], tuple(map(torch.clone, inputs)), seed)
    new = _step(fresh, later, seed)
    result = run_forward(node, inputs, seed)
    outputs = _copies(as_tuple(result))
    with torch.no_grad():
        for buffer, values in zip(inputs, later, strict=True):
            buffer.copy_(values)
    try:
        grads = run_backward(node, result, upstream(outputs, seed), inputs)
        got = Trial(outcome_of(node, outputs, grads, inputs))
    except Exception as raised:  # a layer may well refuse; that is the trial's result
        got = Trial(None, raised)
    return Overwrite(got, old, new)


def recorded(example: Example, seed: int = 0, *, training: bool | None = None) -> Recording:
    """What the layer and its children register in one forward."""
    node, inputs = _made(example, seed, training)
    saver = RecordingSaver()
    wire(node, saver)
    result = run_forward(node, inputs, seed)
    wire(node, None)
    return Recording(node, inputs, as_tuple(result), tuple(saver.tensors))


# ---- against torch autograd


def by_autograd(
    example: Example, reference: Reference | None = None, seed: int = 0, *, training: bool | None = None
) -> Outcome:
    """The step that autograd takes through ``reference(node, *inputs)``; by default through the node's own forward."""
    node, inputs = _made(example, seed, training)
    leaves = tuple(_leaf(tensor) for tensor in inputs)
    parameters = dict(node.named_parameters())
    for parameter in parameters.values():
        parameter.value = _leaf(parameter.value)
    with torch.enable_grad(), seeded(seed):
        result = node.forward(*leaves) if reference is None else reference(node, *leaves)
    outputs = as_tuple(result)
    wanted = [t for t in (*leaves, *(p.value for p in parameters.values())) if t.requires_grad]
    differentiable = [(o, g) for o, g in zip(outputs, upstream(outputs, seed), strict=True) if o.requires_grad]
    found: tuple[Tensor | None, ...] = (None,) * len(wanted)
    if differentiable:
        found = torch.autograd.grad(
            [output for output, _ in differentiable], wanted, [grad for _, grad in differentiable], allow_unused=True
        )
    grads = {id(leaf): grad for leaf, grad in zip(wanted, found, strict=True)}
    return Outcome(
        _copies(outputs),
        tuple(grads.get(id(leaf)) for leaf in leaves),
        tuple((name, grads.get(id(parameter.value))) for name, parameter in parameters.items()),
    )


def _leaf(tensor: Tensor) -> Tensor:
    differentiable = tensor.is_floating_point() or tensor.is_complex()
    return tensor.detach().clone().requires_grad_(differentiable)


def as_function(
    example: Example, seed: int = 0, *, training: bool | None = None
) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    """The layer as a function of its differentiable tensors, and those tensors, for ``torch.autograd.gradcheck``.

    The function's derivative is the layer's own backward, run on a fresh node at each call, and recorded, so that
    ``gradgradcheck`` differentiates backward itself.
    """
    node, inputs = _made(example, seed, training)
    leaves = tuple(map(_leaf, inputs))
    weights = tuple(_leaf(parameter.value) for parameter in node.parameters())
    positions = [index for index, leaf in enumerate(leaves) if leaf.requires_grad]
    count = len(positions)

    def fresh(tensors: Sequence[Tensor]) -> tuple[Node, tuple[Tensor, ...]]:
        made, _ = _made(example, seed, training)
        given = list(leaves)
        for position, tensor in zip(positions, tensors[:count], strict=True):
            given[position] = tensor
        for parameter, tensor in zip(made.parameters(), tensors[count:], strict=True):
            parameter.value = tensor
        return made, tuple(given)

    class Applied(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Tensor) -> Any:
            ctx.save_for_backward(*tensors)
            made, given = fresh(tensors)
            with seeded(seed):
                return made.forward(*given)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            tensors = ctx.saved_tensors
            made, given = fresh(tensors)
            with seeded(seed):
                result = made.forward(*given)
            found = made.backward(grads if isinstance(result, tuple) else grads[0], *given)
            found = tuple(found) if isinstance(found, tuple | list) else (found,)
            padded = [*found, *[None] * (len(given) - len(found))]
            return (*(padded[position] for position in positions), *(p.grad for p in made.parameters()))

    tensors = (*(leaves[position] for position in positions), *weights)
    apply: Callable[..., Any] = Applied.apply
    return apply, tensors


def gradcheck(example: Example, seed: int = 0, *, second: bool = False, training: bool | None = None) -> bool:
    """Finite differences in float64 against the layer's backward, and with ``second`` against its derivative.

    Raises:
        GradcheckError: from torch, with both Jacobians, where they differ.
    """
    function, tensors = as_function(example, seed, training=training)
    if not tensors:
        return True
    first: bool = torch.autograd.gradcheck(function, tensors, nondet_tol=0.0)
    return first and (not second or bool(torch.autograd.gradgradcheck(function, tensors)))
