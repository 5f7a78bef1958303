"""What one field of a layer does to the gradient when its storage, and no other, is poisoned between the passes.

The proof runs under the arena: after forward the tensors of the field get storages of their own with the same values,
everything else that the layer holds is pinned, and a reset poisons what is left, which is the field. Backward gets live
inputs in ordinary memory, so a field that is an alias of an input is told apart from the input. Gradients are compared
by value: comparisons swallow NaN, and a NaN from a stale ReLU input leaves a finite, wrong gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from cachelint.runtime.arena import Arena
from cachelint.runtime.harness import (
    ARENA_BYTES,
    Example,
    Outcome,
    as_tuple,
    outcome_of,
    recorded,
    run_backward,
    run_forward,
    upstream,
    worst,
)
from cachelint.runtime.node import Node
from cachelint.runtime.walk import Walkable, members, replace_tensors, walk

TOLERANCE = 1e-9


class Effect(StrEnum):
    """What poisoning a field does, the strongest that any example of the layer shows."""

    CORRUPTS = "corrupts the gradient"
    WITHOUT_INPUTS = "corrupts it without live inputs"
    NEXT_STEP = "corrupts the next step"
    SHAPE_ONLY = "read for its shape alone"
    NOTHING = "changes nothing"
    HANDLE = "holds a layer, no storage of its own"
    HOST = "holds no device storage"


_ORDER = tuple(Effect)


@dataclass(frozen=True, slots=True)
class FieldProof:
    """The effect of one field. ``error``: relative difference of the gradients, infinite for NaN or an exception."""

    field: str
    effect: Effect
    error: float = 0.0


def field_value(node: Node, field: str) -> object:
    """The attribute ``field`` of ``node``; None if it is not there."""
    return getattr(node, field, None)


def own_tensors(value: object) -> list[Tensor]:
    """The tensors that ``value`` is or holds in containers, dataclasses and closures, but not in other layers."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Walkable):
        return []
    found = walk(value, closures=True, enter=lambda member: not isinstance(member, Walkable))
    return [member for _, member in found if isinstance(member, Tensor)]


def written_fields(example: Example, seed: int = 0) -> tuple[str, ...]:
    """The attributes that one forward assigns, found by comparing the layer before and after."""
    node, inputs = example(seed)
    before = {name: _fingerprint(value) for name, value in vars(node).items()}
    run_forward(node, inputs, seed)
    return tuple(n for n, value in vars(node).items() if n not in before or _fingerprint(value) != before[n])


def registered_fields(examples: tuple[Example, ...], seed: int = 0) -> set[str]:
    """The attributes whose tensors, in each example in which they hold any, all go to the saver; told by storage."""
    registered: set[str] = set()
    missed: set[str] = set()
    for example in examples:
        recording = recorded(example, seed)
        saved = {tensor.untyped_storage().data_ptr() for tensor in recording.saved}
        for name, value in vars(recording.node).items():
            held = {tensor.untyped_storage().data_ptr() for tensor in own_tensors(value)}
            if held:
                (registered if held <= saved else missed).add(name)
    return registered - missed


def _fingerprint(value: object) -> object:
    """Equal for an attribute that forward left alone; tensors and objects count by identity, plain values by value."""
    if isinstance(value, str | int | float | bool | None):
        return value
    return (id(value), tuple(id(tensor) for tensor in own_tensors(value)))


def prove(examples: tuple[Example, ...], field: str, seed: int = 0) -> FieldProof:
    """The strongest effect of ``field`` over ``examples``."""
    proofs = [_prove_one(example, field, seed) for example in examples]
    return min(proofs, key=lambda proof: _ORDER.index(proof.effect))


def _prove_one(example: Example, field: str, seed: int) -> FieldProof:
    node, inputs = example(seed)
    run_forward(node, inputs, seed)
    value = field_value(node, field)
    if not own_tensors(value):
        return FieldProof(field, Effect.HANDLE if _holds_layer(value) else Effect.HOST)
    for live, effect in ((True, Effect.CORRUPTS), (False, Effect.WITHOUT_INPUTS)):
        for poison in (_poison, _scramble):
            error = _difference(example, seed, live, partial(_apply, poison, field))
            if error > TOLERANCE:
                return FieldProof(field, effect, error)
    error = _next_step_difference(example, seed, field)
    if error > TOLERANCE:
        return FieldProof(field, Effect.NEXT_STEP, error)
    for live in (True, False):
        error = _difference(example, seed, live, lambda node, arena: setattr(node, field, None))
        if error > TOLERANCE:
            return FieldProof(field, Effect.SHAPE_ONLY, error)
    return FieldProof(field, Effect.NOTHING)


def _holds_layer(value: object) -> bool:
    return isinstance(value, Walkable) or any(isinstance(member, Walkable) for _, member in walk(value))


Change = Callable[[Node, Arena], None]
Poison = Callable[[Node, str, Arena], None]


def _difference(example: Example, seed: int, live: bool, change: Change) -> float:
    """How far ``change`` between the passes moves the gradients; zero if backward doesn't run without it either."""
    want = _attempt(example, seed, live, lambda node, arena: None)
    if isinstance(want, Exception):
        return 0.0
    got = _attempt(example, seed, live, change)
    return float("inf") if isinstance(got, Exception) else worst(got, want, outputs=False)


def _attempt(example: Example, seed: int, live: bool, change: Change) -> Outcome | Exception:
    node, inputs = example(seed)
    arena = _arena(inputs)
    try:
        # Copies: whatever the layer keeps of its inputs must not be what backward is handed as live inputs.
        kept = tuple(map(torch.clone, inputs))
        with arena.place("allow"):
            result = run_forward(node, kept, seed)
        outputs = as_tuple(result)
        grads = upstream(outputs, seed)
        change(node, arena)
        with arena.place("allow"):
            found = run_backward(node, result, grads, inputs if live else ())
        return outcome_of(node, outputs, found, inputs)
    except Exception as raised:  # poison may well make a layer raise: that is a proof too
        return raised


def _next_step_difference(example: Example, seed: int, field: str) -> float:
    """How far poisoning ``field`` after a step moves the step after it: outputs and gradients."""
    try:
        want = _second_step(example, seed, lambda node, arena: None)
    except Exception:  # the layer can't take a second step: the field is not to blame
        return 0.0
    try:
        return worst(_second_step(example, seed, partial(_apply, _poison, field)), want)
    except Exception:
        return float("inf")


def _second_step(example: Example, seed: int, between: Change) -> Outcome:
    node, inputs = example(seed)
    _, later = example(seed + 1)
    arena = _arena(inputs)
    with arena.place("allow"):
        result = run_forward(node, inputs, seed)
        run_backward(node, result, upstream(as_tuple(result), seed), inputs)
    between(node, arena)
    node.zero_grad()
    with arena.place("allow"):
        result = run_forward(node, later, seed + 1)
        outputs = as_tuple(result)
        found = run_backward(node, result, upstream(outputs, seed + 1), later)
    return outcome_of(node, outputs, found, later)


def _arena(inputs: tuple[Tensor, ...]) -> Arena:
    return Arena(ARENA_BYTES, (next((tensor.device for tensor in inputs), torch.device("cpu")),), poison=True)


def _poison(node: Node, field: str, arena: Arena) -> None:
    """Give the tensors of ``field`` arena memory of their own and let a reset take that back, and nothing else."""
    arena.mark_floor()
    _change_field(node, field, arena.move)
    arena.reset(rewind=False)


def _apply(poison: Poison, field: str, node: Node, arena: Arena) -> None:
    poison(node, field, arena)


def _scramble(node: Node, field: str, arena: Arena) -> None:
    """Give ``field`` finite wrong values: for code that a NaN leaves cold."""
    _change_field(node, field, scrambled)


def scrambled(tensor: Tensor) -> Tensor:
    """Other values of the same kind: negated bools, integers moved round by one element, floats mapped to -2x - 1."""
    if tensor.dtype is torch.bool:
        return ~tensor
    if tensor.is_floating_point() or tensor.is_complex():
        return (tensor.to(torch.promote_types(tensor.dtype, torch.float32)) * -2 - 1).to(tensor.dtype)
    return tensor.flatten().roll(1).view(tensor.shape)


def _change_field(node: Node, field: str, change: Callable[[Tensor], Tensor]) -> None:
    value = getattr(node, field)
    changed = _replaced(value, change)
    if changed is not value:
        setattr(node, field, changed)


def _replaced(value: object, change: Callable[[Tensor], Tensor]) -> Any:
    """``value`` with its own tensors changed, closures included, other layers left alone."""
    if isinstance(value, Walkable):
        return value
    if isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            cell.cell_contents = _replaced(cell.cell_contents, change)
        return value
    if members(value) is None and not isinstance(value, Tensor):
        return value
    return replace_tensors(value, change)
