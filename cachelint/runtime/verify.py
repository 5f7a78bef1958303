"""``cachelint verify``: a layer under poison, its gradients compared with each other and with a reference formula."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cachelint.runtime.poison import PoisonError, Proof, prove, relative_error
from cachelint.runtime.poison_holders import reach
from cachelint.runtime.storages import tensors_in
from cachelint.runtime.subject import is_by_hand, subject, upstream
from cachelint.runtime.target import Setup, Target, describe

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""‖out - ref‖ / ‖ref‖ up to which a gradient agrees with the reference; half precision 5e-2."""


@dataclass(frozen=True, slots=True)
class Verification:
    """A proof, and how far each gradient lies from that of the module's ``reference`` (empty without one)."""

    label: str
    inputs: tuple[str, ...]
    proof: Proof
    reference: dict[str, float]
    tolerance: float

    @property
    def wrong(self) -> tuple[str, ...]:
        """The gradients that don't agree with the reference."""
        return tuple(name for name, error in self.reference.items() if not error <= self.tolerance)

    @property
    def ok(self) -> bool:
        """No hazard, and no gradient off the reference."""
        return self.proof.ok and not self.wrong

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        found = {"target": self.label, "inputs": list(self.inputs), **self.proof.to_dict(), "ok": self.ok}
        gradients = {
            name: {
                "norm": _norm(grad),
                "poisoned": _norm(self.proof.after.get(name)) if self.proof.after else None,
                "reference_error": self.reference.get(name),
            }
            for name, grad in self.proof.before.items()
        }
        return {**found, "gradients": gradients, "tolerance": self.tolerance, "wrong": list(self.wrong)}


def verify(
    target: Target, setup: Setup, *, order: int = 1, live_inputs: bool = True, autograd: bool = False
) -> Verification:
    """Test ``target`` under poison. If its module has ``reference(node, *inputs)``, compare with its gradients too.

    Raises:
        PoisonError: the target fails without poison, or nothing can be differentiated.
        TargetError, SpecError: it can't be made.
        TypeError: it is nothing that can be run.
    """
    value, inputs = target.ready(setup)
    proof = prove(
        value,
        *inputs,
        seed=setup.seed,
        order=order,
        live_inputs=live_inputs,
        autograd=autograd,
        fresh=lambda: target.ready(setup)[0],
    )
    reference = getattr(target.module, "reference", None)
    errors: dict[str, float] = {}
    if callable(reference) and is_by_hand(value) and not autograd:
        try:
            wanted = _by_reference(reference, *target.ready(setup), setup.seed)
        except Exception as error:  # the reference is the user's code too
            raise PoisonError(f"its reference function raised {describe(error)}") from error
        errors = {name: _agreement(grad, wanted[name]) for name, grad in proof.before.items() if name in wanted}
    tolerance = TOLERANCE.get(setup.dtype, 5e-2)
    return Verification(target.label, tuple(map(_shown, inputs)), proof, errors, tolerance)


def _by_reference(reference: Any, value: Any, inputs: tuple[Any, ...], seed: int) -> dict[str, Tensor | None]:
    """Gradients by autograd through the formula, under the names that the layer's own backward gives them."""
    weights = {path: tensor for path, tensor in reach(value, "self") if path.endswith(".value")}
    for tensor in weights.values():
        tensor.requires_grad_()
    made, _ = subject(lambda *given: reference(value, *given))()
    arguments = made.arguments(inputs)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        result = made.forward(arguments, None)
    outputs = tuple(tensors_in(result))
    pairs = [(o, g) for o, g in zip(outputs, upstream(outputs, seed + 7919), strict=True) if o.requires_grad]
    leaves = {**arguments.leaves, **{path.removesuffix("value") + "grad": t for path, t in weights.items()}}
    found = torch.autograd.grad(
        [output for output, _ in pairs], list(leaves.values()), [grad for _, grad in pairs], allow_unused=True
    )
    return dict(zip(leaves, found, strict=True))


def _agreement(found: Tensor | None, wanted: Tensor | None) -> float:
    """The relative error. A gradient that is missing is zero: a layer may give either."""
    if found is None or wanted is None:
        there = wanted if found is None else found
        return 0.0 if there is None or not bool(there.any()) else float("inf")
    return relative_error(found, wanted)


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return repr(value)


def _norm(grad: Tensor | None) -> float | None:
    if grad is None:
        return None
    norm = float(torch.linalg.vector_norm(grad.to(torch.complex128 if grad.is_complex() else torch.float64)))
    return norm if norm == norm else None


def rows(found: Verification) -> Iterator[tuple[str, str, str, str]]:
    """A table: gradient, its norm, under poison, against the reference."""
    yield "gradient", "norm", "under poison", "reference"
    for name, grad in found.proof.before.items():
        norm = _norm(grad)
        if not found.proof.after:
            poisoned = "raised"
        else:
            error = relative_error(found.proof.after.get(name), grad)
            poisoned = "same" if error == 0 else ("NaN or gone" if error == float("inf") else f"off by {error:.2g}")
        agreed = found.reference.get(name)
        yield (
            name,
            "none" if norm is None else f"{norm:.4g}",
            poisoned,
            "" if agreed is None else f"off by {agreed:.1g}",
        )


def text(found: Verification) -> Iterator[str]:
    """The result for people, line by line."""
    yield f"{found.label}({', '.join(found.inputs)})"
    table = list(rows(found))
    if not found.reference:
        table = [(*row[:3], "") for row in table]
    widths = [max(len(row[column]) for row in table) for column in range(4)]
    for row in table:
        yield ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
    for hazard in found.proof.hazards:
        yield f"hazard: {hazard}"
    for held in found.proof.harmless:
        yield f"kept and not read: {held}"
    for note in found.proof.notes:
        yield f"note: {note}"
    for name in found.wrong:
        yield f"wrong: {name} is off the reference by {found.reference[name]:.2g}, more than {found.tolerance:.0e}"
    yield _summary(found)


def _summary(found: Verification) -> str:
    count = len(found.proof.hazards)
    tested = count + len(found.proof.harmless)
    under = f"{found.proof.registered} under the contract"
    if count:
        what = "one unregistered storage" if count == 1 else f"{count} unregistered storages"
        return f"proven: backward reads {what} ({tested} tested, {under})"
    return f"clean: backward reads live inputs and what is registered, nothing else ({tested} tested, {under})"
