"""``cachelint measure``: the peak of two versions of the same code, side by side, and what was alive there.

Both versions are built anew for every trial, from the same seed, after one step that is not measured. Trials come in
pairs whose order alternates. The peak is the meter's, and on CUDA that of the device's own counters too. Whether both
versions give the same numbers is compared bit for bit, at sizes of its own, since the meta device has no values.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from cachelint.runtime.meter import Meter
from cachelint.runtime.meter_report import Live, MeterReport
from cachelint.runtime.parameter import Parameter
from cachelint.runtime.poison_holders import objects
from cachelint.runtime.storages import storages_of, tensors_in
from cachelint.runtime.subject import is_by_hand, subject, taken, upstream
from cachelint.runtime.target import Setup, Target, describe, tensors_named

MODES = ("forward", "gradient", "backward")
"""Forward alone without recording; forward under autograd; forward and backward."""


class MeasureError(Exception):
    """A version can't be run; the message is one line."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. ``setup`` is that of the peak, ``small`` that of the comparison, on a device that has values."""

    setup: Setup
    small: Setup
    mode: str = "backward"
    autograd: bool = False
    pairs: int = 12
    runs: int = 3


@dataclass(frozen=True, slots=True)
class Owners:
    """Names of one function that a lifetime rule has flagged; ``function`` is its qualified name."""

    function: str
    names: tuple[str, ...]
    path: str = ""
    line: int = 0
    code: str = ""


@dataclass(frozen=True, slots=True)
class Owned:
    """One storage that a flagged name held, and whether it was alive at the peak."""

    name: str
    storage: Live
    at_peak: bool


@dataclass(frozen=True, slots=True)
class Pair:
    """One trial of each version; ``first`` says which ran first."""

    first: str
    before: MeterReport
    after: MeterReport

    @property
    def reduction(self) -> int:
        """Bytes by which the peak fell."""
        return self.before.peak - self.after.peak


@dataclass(frozen=True, slots=True)
class Comparison:
    """One tensor of both versions, compared bit for bit."""

    run: int
    what: str
    equal: bool


@dataclass(frozen=True, slots=True)
class Measurement:
    """Everything that was measured.

    ``after`` is None and ``pairs`` hold the same report twice where there was only one version. ``owned_before`` and
    ``owned_after`` are the flagged owners' storages in the first pair.
    """

    before: str
    after: str | None
    plan: Plan
    inputs: tuple[str, ...]
    scope: str
    pairs: tuple[Pair, ...]
    comparisons: tuple[Comparison, ...] = ()
    owners: tuple[Owners, ...] = ()
    owned_before: tuple[Owned, ...] = ()
    owned_after: tuple[Owned, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def equal_starts(self) -> int:
        """How many pairs have equal starting allocations."""
        return sum(pair.before.start == pair.after.start for pair in self.pairs)

    @property
    def equal(self) -> int:
        """How many comparisons were equal."""
        return sum(each.equal for each in self.comparisons)

    @property
    def ok(self) -> bool:
        """Whether the two versions may be compared at all: equal starts, and the same numbers."""
        return self.equal_starts == len(self.pairs) and self.equal == len(self.comparisons)


# ---- one trial -------------------------------------------------------------------------------------------------------


def trial(target: Target, plan: Plan, watch: Callable[[Meter, list[FrameType]], None] | None = None) -> MeterReport:
    """Build ``target``, run one step, and measure the next. Raises MeasureError, TargetError, SpecError."""
    value, inputs = target.ready(plan.setup)
    by_hand = is_by_hand(value) and not plan.autograd
    if not by_hand and plan.mode != "forward":
        trainable(value)
    try:
        grads = upstream(_step(value, inputs, plan.mode, by_hand, None), plan.setup.seed)
        _clear_gradients(value, inputs)
        start = tensors_named(value, inputs)
        if plan.mode == "backward":
            start.update({f"gradient of output {index}": grad for index, grad in enumerate(grads)})
        else:
            grads = ()
        device = torch.device(plan.setup.device).type
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
        with Meter(start, device=device, watch=watch) as meter:
            _step(value, inputs, plan.mode, by_hand, grads)
        return meter.report()
    except Exception as error:  # whatever the code under test raises
        raise MeasureError(f"{target.label}: running it raised {describe(error)}") from error


def _step(
    value: Any, inputs: Sequence[Any], mode: str, by_hand: bool, grads: Sequence[Tensor] | None
) -> tuple[Tensor, ...]:
    """One step; without ``grads`` only its forward."""
    with torch.set_grad_enabled(mode != "forward" and not by_hand):
        result = value.forward(*inputs) if by_hand else _callable(value)(*inputs)
    outputs = tuple(tensors_in(result))
    if mode != "backward" or grads is None:
        return outputs
    if by_hand:
        with torch.no_grad():
            grad = tuple(grads) if isinstance(result, tuple | list) else grads[0]
            value.backward(grad, *taken(value.backward, inputs))
    else:
        pairs = [(output, grad) for output, grad in zip(outputs, grads, strict=True) if output.requires_grad]
        if not pairs:
            raise ValueError("no output requires a gradient; measure it with --mode forward")
        torch.autograd.backward([output for output, _ in pairs], [grad for _, grad in pairs])
    return outputs


def _callable(value: Any) -> Callable[..., Any]:
    """What to call: a Function's ``apply``, a layer's ``forward`` if it can't be called itself, else the value."""
    if isinstance(value, type):
        found: Callable[..., Any] = value.apply  # type: ignore[attr-defined]
        return found
    call: Callable[..., Any] = value if callable(value) else value.forward
    return call


def trainable(value: object) -> None:
    """Let autograd find the contract's parameters, which don't ask for gradients by themselves."""
    for _, each in objects(value):
        if isinstance(each, Parameter) and (each.value.is_floating_point() or each.value.is_complex()):
            each.value.requires_grad_()


def _clear_gradients(value: object, inputs: Sequence[Any]) -> None:
    for _, each in objects([value, list(inputs)]):
        if isinstance(each, Parameter) or (isinstance(each, Tensor) and each.is_leaf):
            each.grad = None


# ---- both versions ---------------------------------------------------------------------------------------------------


def measure(
    before: Target, after: Target | None, plan: Plan, owners: Sequence[Owners] = (), scope: str = "component"
) -> Measurement:
    """Measure ``before`` and ``after``, or ``before`` alone, as ``plan`` says.

    Raises:
        MeasureError: a version raises.
        TargetError, SpecError: a version, or its arguments, can't be made.
    """
    pairs = []
    for index in range(plan.pairs if after is not None else 1):
        first = "before" if index % 2 == 0 else "after"
        reports = {}
        for name in ("before", "after") if first == "before" else ("after", "before"):
            if name == "before" or after is not None:
                reports[name] = trial(before if name == "before" or after is None else after, plan)
        pairs.append(Pair(first, reports["before"], reports.get("after", reports["before"])))
    _, inputs = before.ready(plan.setup)
    notes: list[str] = []
    return Measurement(
        before=before.label,
        after=after.label if after is not None else None,
        plan=plan,
        inputs=tuple(_shown(each) for each in inputs),
        scope=scope,
        pairs=tuple(pairs),
        comparisons=compare(before, after, plan) if after is not None else (),
        owners=tuple(owners),
        owned_before=owned(before, plan, owners, pairs[0].before, notes),
        owned_after=owned(after, plan, owners, pairs[0].after, notes) if after is not None else (),
        notes=tuple(notes),
    )


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return repr(value)


def compare(before: Target, after: Target, plan: Plan) -> tuple[Comparison, ...]:
    """Outputs, input gradients and parameter gradients of both versions, bit for bit, for ``plan.runs`` seeds."""
    found = []
    for run in range(plan.runs):
        setup = replace(plan.small, seed=plan.small.seed + run)
        old, new = _numbers(before, setup, plan), _numbers(after, setup, plan)
        for what in [*old, *(name for name in new if name not in old)]:
            found.append(Comparison(run, what, what in old and what in new and same_bits(old[what], new[what])))
    return tuple(found)


def same_bits(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether two tensors have the same shape, dtype and bits, NaN and signed zeros included."""
    if a is None or b is None:
        return a is b
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a.contiguous().flatten().view(torch.uint8), b.contiguous().flatten().view(torch.uint8))


def _numbers(target: Target, setup: Setup, plan: Plan) -> dict[str, Tensor | None]:
    value, inputs = target.ready(setup)
    if plan.autograd or not is_by_hand(value):
        trainable(value)
    made, _ = subject(value, autograd=plan.autograd, fresh=lambda: value)()
    arguments = made.arguments(inputs)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(setup.seed)
            result = made.forward(arguments, None)
            outputs = tuple(tensors_in(result))
            found: dict[str, Tensor | None] = {f"output {n}": t.detach().clone() for n, t in enumerate(outputs)}
            if plan.mode != "forward" or is_by_hand(value):
                grads = upstream(outputs, setup.seed)
                gradients = made.backward(result, grads, arguments, arguments.given)
                found.update({f"gradient of {_plain(name)}": grad for name, grad in gradients.items()})
    except Exception as error:  # whatever the code under test raises
        raise MeasureError(f"{target.label}: comparing it raised {describe(error)}") from error
    return found


def _plain(name: str) -> str:
    """``self.weight`` for a parameter, whose value is differentiated by autograd and whose gradient is kept by hand."""
    return name.removesuffix(".grad").removesuffix(".value")


# ---- who the flagged owners are --------------------------------------------------------------------------------------


def owned(
    target: Target, plan: Plan, owners: Sequence[Owners], report: MeterReport, notes: list[str]
) -> tuple[Owned, ...]:
    """The storages that the flagged names hold, in ``report``.

    Found in a run of their own, in which the locals of the flagged functions are looked at before every operator:
    looking keeps the tensors alive a little longer, so that run is not measured. The storages are the same ones, since
    both runs make theirs in the same order.
    """
    if not owners:
        return ()
    held: dict[int, str] = {}

    def watch(meter: Meter, frames: list[FrameType]) -> None:
        for frame in frames:
            for owner in owners:
                if frame.f_code.co_qualname == owner.function:
                    for name in owner.names:
                        for tensor in tensors_in(frame.f_locals.get(name)):
                            for storage, _ in storages_of(tensor):
                                serial = meter.serial_of(storage)
                                if serial is not None:
                                    held.setdefault(serial, name)

    again = trial(target, plan, watch)
    if [event.site.op for event in again.timeline] != [event.site.op for event in report.timeline]:
        notes.append(f"{target.label} does not run the same operators every time: the flagged owners can't be told")
        return ()
    by_serial = {each.serial: each for each in report.storages}
    alive = {each.serial for each in report.live}
    return tuple(Owned(name, by_serial[serial], serial in alive) for serial, name in sorted(held.items()))
