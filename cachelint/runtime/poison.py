"""Proof that a layer's backward reads memory that nobody keeps for it.

``prove(target, *inputs)`` runs forward, overwrites every storage that forward made and that is neither input, output
nor registered, runs backward, and compares the gradients with those of a run in which nothing was overwritten. Inputs
and outputs that the receiver keeps are tested too: the caller has its own copies, backward gets fresh copies as live
inputs, and the original storages are overwritten. A gradient that changes, or turns NaN, proves the hazard.

``Poison`` is the same as a context manager, for code that runs backward itself.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from cachelint.runtime.errors import RuntimeContractError
from cachelint.runtime.poison_fill import Pattern
from cachelint.runtime.poison_holders import holders, persistent
from cachelint.runtime.poison_watch import Held, Watch
from cachelint.runtime.storages import tensors_in
from cachelint.runtime.subject import Gradients, Maker, replaced, subject, upstream

__all__ = ["Hazard", "Held", "Pattern", "Poison", "PoisonError", "Proof", "prove"]


class PoisonError(RuntimeContractError):
    """The target can't be tested: it fails, or has nothing to differentiate, without any poison."""


@dataclass(frozen=True, slots=True)
class Hazard:
    """A storage that backward reads although nothing keeps it.

    ``effect`` is ``nan``, ``changed`` or ``raised``, ``gradients`` the names of those concerned, ``error`` the largest
    ‖after - before‖ / ‖before‖ among them (infinite for NaN), ``detail`` the exception of backward, if it raised one.
    """

    held: Held
    effect: str
    gradients: tuple[str, ...]
    error: float
    detail: str = ""

    def __str__(self) -> str:
        """One line: which storage, and what happened to which gradients."""
        if self.effect == "raised":
            return f"{self.held}: backward raised {self.detail}"
        names = ", ".join(self.gradients)
        how = "turns NaN" if self.effect == "nan" else f"changes by {self.error:.3g} of its norm"
        return f"{self.held}: {names} {how}"


@dataclass(frozen=True, slots=True)
class Proof:
    """What was tested and what came of it.

    ``before`` and ``after`` are the gradients without poison and with everything poisoned (empty if backward raised).
    ``hazards`` are the storages that backward reads; ``harmless`` those that somebody keeps and that it does not.
    ``registered`` counts the storages under the contract.
    """

    name: str
    before: Gradients
    after: Gradients
    hazards: tuple[Hazard, ...]
    harmless: tuple[Held, ...]
    registered: int
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether backward reads nothing but live inputs and what is registered."""
        return not self.hazards

    def raise_if_hazard(self) -> None:
        """Raise AssertionError with one line a hazard, for tests."""
        if self.hazards:
            raise AssertionError(
                "\n".join([f"{self.name} reads unregistered memory in backward:", *map(str, self.hazards)])
            )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {
            "name": self.name,
            "ok": self.ok,
            "gradients": list(self.before),
            "hazards": [
                {
                    **_held_dict(hazard.held),
                    "effect": hazard.effect,
                    "gradients": list(hazard.gradients),
                    "error": hazard.error if math.isfinite(hazard.error) else None,
                    "detail": hazard.detail,
                }
                for hazard in self.hazards
            ],
            "harmless": [_held_dict(held) for held in self.harmless],
            "registered": self.registered,
            "notes": list(self.notes),
        }


def _held_dict(held: Held) -> dict[str, Any]:
    line = held.made.line if held.made is not None else None
    return {
        "kind": held.kind,
        "path": held.path,
        "shape": list(held.shape),
        "dtype": held.dtype,
        "bytes": held.nbytes,
        "op": held.made.op if held.made is not None else None,
        "made": str(line) if line is not None else None,
    }


@dataclass(frozen=True, slots=True)
class _Run:
    gradients: Gradients
    held: tuple[Held, ...]
    registered: int
    error: Exception | None
    note: str


def prove(
    target: object,
    *inputs: Any,
    seed: int = 0,
    order: int = 1,
    live_inputs: bool = True,
    autograd: bool = False,
    patterns: Sequence[Pattern] = (Pattern.NAN, Pattern.WRONG),
    fresh: Callable[[], object] | None = None,
) -> Proof:
    """Test ``target`` on ``inputs``, which are copied and not touched.

    ``target`` is a ``torch.autograd.Function`` subclass, a layer with ``forward`` and ``backward(grad, *inputs)``, a
    ``torch.nn.Module``, or a callable that autograd differentiates. ``inputs`` are tensors of any shape (floating-point
    ones get gradients), containers of tensors, or other values. Random draws come from ``seed``. ``order=2`` tests the
    second derivative as well. ``live_inputs=False`` calls a hand-written backward with the gradient alone; ``autograd``
    differentiates such a layer through its forward instead. Layers are copied for every run; ``fresh`` makes them anew
    instead, for those whose copies are not the same (what is ``Persistent`` is not copied).

    Raises:
        PoisonError: ``target`` fails without poison, or nothing can be differentiated.
        TypeError: ``target`` is nothing of the above.
    """
    if any(tensor.device.type == "meta" for tensor in tensors_in(list(inputs))):
        raise PoisonError("poison needs values, and tensors on the meta device have none")
    maker = subject(target, live_inputs=live_inputs, autograd=autograd, fresh=fresh)
    clean = _clean(maker, inputs, seed, order)
    noise = _noise(clean.gradients, _clean(maker, inputs, seed, order).gradients)
    everything = [held.key for held in clean.held]
    struck = {p: _run(maker, inputs, seed, order, everything, p) for p in patterns if everything}
    after = next(iter(struck.values()), clean)
    hazards: list[Hazard] = []
    notes = [clean.note] if clean.note else []
    if any(_changes(clean, run, noise) for run in struck.values()):
        hazards = [
            hazard for held in clean.held if (hazard := _test(held, maker, inputs, seed, order, patterns, clean, noise))
        ]
        if not hazards:
            notes.append("no storage alone changes a gradient, only all of them together")
            hazards = [h for held in clean.held for h in _verdict(held, clean, after, noise)]
    guilty = {hazard.held.key for hazard in hazards}
    gc.collect()  # an output kept on ctx makes a cycle with its graph
    name, _ = maker()
    return Proof(
        name=name.name,
        before=clean.gradients,
        after=after.gradients,
        hazards=tuple(hazards),
        harmless=tuple(h for h in clean.held if h.key not in guilty and (h.path or h.kind == "intermediate")),
        registered=clean.registered,
        notes=tuple(notes),
    )


def _clean(maker: Maker, inputs: Sequence[Any], seed: int, order: int) -> _Run:
    run = _run(maker, inputs, seed, order, (), Pattern.NAN)
    if run.error is not None:
        raise PoisonError(f"it fails without poison: {type(run.error).__name__}: {run.error}") from run.error
    return run


def _test(
    held: Held,
    maker: Maker,
    inputs: Sequence[Any],
    seed: int,
    order: int,
    patterns: Iterable[Pattern],
    clean: _Run,
    noise: dict[str, float],
) -> Hazard | None:
    """Overwrite this one storage alone."""
    for pattern in patterns:
        run = _run(maker, inputs, seed, order, [held.key], pattern)
        for hazard in _verdict(held, clean, run, noise):
            return hazard
    return None


def _run(
    maker: Maker, inputs: Sequence[Any], seed: int, order: int, chosen: Sequence[tuple[str, int]], pattern: Pattern
) -> _Run:
    torch.clear_autocast_cache()  # a cast that an earlier run has cached would be an old storage in this one
    made, note = maker()
    watch = Watch()
    with _seeded(seed):
        arguments = made.arguments(inputs)
        watch.inputs(tensors_in(arguments.given))
        try:
            with watch:
                result = made.forward(arguments, watch)
                outputs = tuple(tensors_in(result))
            live = tuple(replaced(value, lambda tensor: tensor.detach().clone()) for value in arguments.given)
            grads = upstream(outputs, seed + 7919)
            arguments.given = ()  # whoever else still holds an input is what we look for
            watch.register(*persistent(made.receivers))
            held = watch.held(outputs, holders(made.receivers, outputs))
            registered = watch.registered()
            watch.strike(chosen, pattern, outputs)
            with watch:
                gradients = made.backward(result, grads, arguments, live, graph=order > 1)
            if order > 1:
                gradients, more = _again(watch, gradients, arguments.leaves, outputs, seed, chosen, pattern)
                held = [*held, *(each for each in more if each.key not in {h.key for h in held})]
            copies = {name: None if grad is None else grad.detach().clone() for name, grad in gradients.items()}
            return _Run(copies, tuple(held), registered, None, note)
        except Exception as error:  # backward on poisoned values may raise anything; that is a result
            return _Run({}, (), 0, error.with_traceback(None), note)
        finally:
            watch.restore()


def _again(
    watch: Watch,
    first: Gradients,
    leaves: dict[str, Tensor],
    outputs: Sequence[Tensor],
    seed: int,
    chosen: Sequence[tuple[str, int]],
    pattern: Pattern,
) -> tuple[Gradients, list[Held]]:
    """The second derivative, after a second strike that also takes what the first backward made."""
    pairs = {name: grad for name, grad in first.items() if grad is not None and grad.requires_grad}
    ends = (*outputs, *(grad for grad in first.values() if grad is not None))
    copies: Gradients = {name: None if grad is None else grad.detach().clone() for name, grad in first.items()}
    if not pairs:
        return copies, []
    grads = upstream(list(pairs.values()), seed + 104729)
    held = watch.held(ends, holders({}, list(pairs.values())))
    watch.strike(chosen, pattern, ends)
    with watch:
        second = torch.autograd.grad(list(pairs.values()), list(leaves.values()), grads, allow_unused=True)
    copies.update({f"second derivative, {name}": grad for name, grad in zip(leaves, second, strict=True)})
    return copies, held


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def relative_error(after: Tensor | None, before: Tensor | None) -> float:
    """‖after - before‖ / ‖before‖ in float64; infinite where one is missing, or NaN in one and not in the other."""
    if after is None or before is None:
        return 0.0 if after is before else math.inf
    if after.shape != before.shape:
        return math.inf
    wide = torch.complex128 if before.is_complex() else torch.float64
    a, b = after.to(wide), before.to(wide)
    same = (a == b) | (a.isnan() & b.isnan())
    if bool(same.all()):
        return 0.0
    if bool((a.isnan() != b.isnan()).any()):
        return math.inf
    gap = float(torch.linalg.vector_norm(torch.where(same, 0, a - b)))
    scale = float(torch.linalg.vector_norm(torch.where(b.isfinite(), b, 0)))
    return gap / scale if scale > 0 else math.inf


def _noise(first: Gradients, second: Gradients) -> dict[str, float]:
    """How far two runs without poison lie apart: atomic additions on a GPU need not give the same bits twice."""
    return {name: relative_error(second.get(name), grad) for name, grad in first.items()}


def _changes(clean: _Run, run: _Run, noise: dict[str, float]) -> bool:
    return run.error is not None or bool(_changed(clean, run, noise))


def _changed(clean: _Run, run: _Run, noise: dict[str, float]) -> dict[str, float]:
    errors = {name: relative_error(run.gradients.get(name), grad) for name, grad in clean.gradients.items()}
    return {name: error for name, error in errors.items() if error > 4 * noise[name]}


def _verdict(held: Held, clean: _Run, run: _Run, noise: dict[str, float]) -> Iterator[Hazard]:
    if run.error is not None:
        yield Hazard(held, "raised", (), math.inf, f"{type(run.error).__name__}: {run.error}".splitlines()[0])
        return
    changed = _changed(clean, run, noise)
    if changed:
        worst = max(changed.values())
        turned = any(_has_nan(run.gradients.get(n)) and not _has_nan(clean.gradients[n]) for n in changed)
        yield Hazard(held, "nan" if turned else "changed", tuple(changed), worst)


def _has_nan(tensor: Tensor | None) -> bool:
    return tensor is not None and bool(tensor.isnan().any())


class Poison:
    """``with Poison() as poison: y = f(x); poison.strike(y); y.backward()``.

    The block is watched; ``strike`` overwrites what it has made and that is neither an output nor registered, and says
    what that was. Leaving the block puts every value back. Tensors that are first seen as an argument were there before
    and stay. With ``ends=True`` the outputs, and the ``inputs`` that were given here, are overwritten as well; they
    hold poison until the block is left.
    """

    def __init__(self, *inputs: Tensor, pattern: Pattern = Pattern.NAN) -> None:
        self._watch = Watch()
        self._watch.inputs(inputs)
        self._pattern = pattern
        self.struck: tuple[Held, ...] = ()

    def __enter__(self) -> Self:
        """Start watching."""
        self._watch.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop watching and put the values back."""
        self._watch.__exit__(kind, error, traceback)
        self._watch.restore()

    @property
    def saver(self) -> Watch:
        """A saver for layers that register by hand: ``layer.set_saver(poison.saver)``."""
        return self._watch

    def strike(self, *outputs: Any, receivers: Iterable[object] = (), ends: bool = False) -> tuple[Held, ...]:
        """Overwrite what nothing keeps; what that was. ``receivers`` are searched for the paths that hold it."""
        tensors = tuple(tensors_in(outputs))
        paths = holders({type(each).__name__: each for each in receivers}, tensors)
        found = [held for held in self._watch.held(tensors, paths) if ends or held.kind == "intermediate"]
        self._watch.strike([held.key for held in found], self._pattern, tensors)
        self.struck += tuple(found)
        return tuple(found)
