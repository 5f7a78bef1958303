"""The Resolution column: in a few words what to do for this field, in this dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachelint.infer.symbols import settle
from cachelint.infer.values import DEVICE
from cachelint.model import FieldClass, Origin

if TYPE_CHECKING:
    from cachelint.classify import Verdict
    from cachelint.infer.analysis import Analysis


def _is_tensor(name: str, analysis: Analysis) -> bool:
    """Whether a dependency is an input of its own that may be a tensor: what there is to save."""
    if "." in name or "[" in name:
        return False
    machine = analysis.machine
    outcome = machine.settled.get(name)
    if outcome is None and name in machine.symbols:
        outcome = settle(machine.symbols[name])
    return outcome is None or not outcome.kinds or bool(outcome.kinds & DEVICE)


def resolution(
    name: str,
    cls: FieldClass,
    origin: Origin,
    registered: bool,
    read: bool,
    verdict: Verdict,
    analysis: Analysis,
) -> str:
    """What to do: read the live input, recompute a slice, or register the value."""
    if registered:
        return "registered"
    if cls is FieldClass.SAFE:
        return "nothing to do"
    if not read:
        return "drop it: backward never reads it"
    spec = analysis.unit.dialect
    first = analysis.unit.receiver == "first"
    if verdict.persistent:
        return "pin it until it is invalidated"
    inputs = ", ".join(sorted(r[2:] for r in verdict.value.roots if r.startswith("p:"))) or "the input"
    needs = ", ".join(sorted(d for d in verdict.value.deps if _is_tensor(d, analysis))[:4]) or "the inputs"
    why = verdict.value.why
    made = f", as on line {why.line}" if why is not None and why.path == analysis.unit.module.path else ""
    save = spec.save[0] if spec.save else "the saver"
    if cls is FieldClass.RECOMPUTE:
        if origin is Origin.INPUT:
            return f"{save}({inputs})" if first else f"read the live input {inputs} in backward"
        if first:
            return f"{save}({needs}), recompute in backward{made}"
        return f"recompute from {needs} in backward{made}"
    return f"{save}({name})" if first else f"register {name} where it is made"
