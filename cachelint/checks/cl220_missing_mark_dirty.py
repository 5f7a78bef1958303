"""CL220: forward changes an input in place and returns it, without mark_dirty."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import exclusive
from cachelint.collect.log import Launch, Mutation, ReceiverLog
from cachelint.infer.analysis import Analysis
from cachelint.infer.kernels import written_parameters
from cachelint.infer.symbols import settle
from cachelint.infer.values import DEVICE, NONE, Seq, Value, carried
from cachelint.model import Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Mutations of inputs that reach a return value. Nothing is said where a mark may cover the input."""
    analysis = context.analysis
    unit, log = analysis.unit, analysis.log
    if unit.dialect.name != "torch-function" or not (log.mutations or log.launches):
        return
    if any(call[0] in ("mark_dirty", "mark_shared_storage") for call in log.api_calls):
        return
    inputs = {f"p:{name}": position for position, name in enumerate(analysis.parameters)}
    returned = [r for r in log.returns if r.phase == "forward"]
    inputs = {root: inputs[root] for root in inputs.keys() & frozenset().union(*(_returned(r.value) for r in returned))}
    if not inputs:
        return
    seen: set[str] = set()
    for event, value in _edits(log, inputs.keys(), unit.module.path):
        for root in value.roots & inputs.keys():
            out = next((r for r in returned if root in _returned(r.value)), None)
            if out is None or root in seen or not _differentiable(inputs[root], analysis):
                continue
            if not value.kinds & DEVICE and not _is_tensor(root[2:], analysis):
                continue
            if any(arm.startswith("except") for _, arm in event.path) or len(value.roots) > 1:
                continue
            if out.order > event.order and exclusive(event, _At(out.path, out.order, event.function), log):
                continue
            seen.add(root)
            name = root[2:]
            yield context.at(
                rule,
                event.node,
                f"the input `{name}` is changed in place and returned, but never passed to ctx.mark_dirty: autograd goes on as if "
                "it had its old value",
            )


def _edits(log: ReceiverLog, inputs: Collection[str], path: str) -> Iterator[tuple[Mutation | Launch, Value]]:
    """In-place writes of forward, then the kernels that store to an input."""
    for mutation in log.mutations:
        if mutation.phase != "forward" or "copy?" in mutation.value.tags or mutation.how.endswith(".data"):
            continue
        if mutation.file == path and "data" not in mutation.value.tags:
            yield mutation, mutation.value
    for launch in log.launches:
        if launch.phase == "forward" and launch.file == path:
            given = {
                name: value
                for name, value in launch.values
                if not value.roots.isdisjoint(inputs) and value.ref is None and not value.tags & _UNSURE
            }
            for name in sorted(written_parameters(launch.func, given)) if given else ():
                yield launch, given[name]


_UNSURE = frozenset(("copy?", "data"))


class _At:
    """A place on a path, as an event."""

    def __init__(self, path: tuple[tuple[int, str], ...], order: int, function: str) -> None:
        self.path = path
        self.order = order
        self.function = function


def _returned(value: object) -> frozenset[str]:
    ref = getattr(value, "ref", None)
    if isinstance(ref, Seq):
        found: frozenset[str] = frozenset()
        for item in ref.each():
            found |= _returned(item)
        return found
    full = carried(value)  # type: ignore[arg-type]
    return frozenset() if "copy?" in full.tags else full.roots


def _is_tensor(name: str, analysis: Analysis) -> bool:
    """What the evidence says of an input that nothing kept made us decide on."""
    symbol = analysis.machine.symbols.get(name)
    return symbol is not None and bool(settle(symbol).kinds & DEVICE)


def _differentiable(position: int, analysis: Analysis) -> bool:
    """Whether backward returns anything but None for an input, on some path."""
    returns = [r for r in analysis.log.returns if r.phase == "backward"]
    for event in returns:
        ref = event.value.ref
        if not isinstance(ref, Seq) or ref.items is None or ref.rest is not None or position >= len(ref.items):
            return True
        if ref.items[position].kinds != NONE:
            return True
    return not returns
