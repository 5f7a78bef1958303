"""A measurement in words and numbers: a table for people, a dictionary for JSON. It says what was measured, no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cachelint.runtime.measure import Measurement, Owned, Pair
from cachelint.runtime.meter_report import CudaCounters, Live, MeterReport, site_dict
from cachelint.runtime.sites import short

SHOWN = 16
"""How many storages of a live set the table lists; JSON has all."""


def text(found: Measurement) -> Iterator[str]:
    """The measurement for people, line by line."""
    plan = found.plan
    yield f"before: {found.before}" if found.after is not None else f"target: {found.before}"
    if found.after is not None:
        yield f"after:  {found.after}"
    dtype = str(plan.setup.dtype).removeprefix("torch.")
    what = {"forward": "forward without recording", "gradient": "forward under autograd"}
    yield (
        f"inputs: {', '.join(found.inputs) or 'none'}; {plan.setup.device}, {dtype}, seed {plan.setup.seed}, "
        + what.get(plan.mode, "forward and backward")
    )
    yield ""
    yield from _table(found)
    yield ""
    yield from _peak("peak before" if found.after is not None else "peak", found.pairs[0].before, found.owned_before)
    if found.after is not None:
        yield ""
        yield from _peak("peak after", found.pairs[0].after, found.owned_after)
    if found.owners:
        yield ""
        yield from _owners(found)
    if found.comparisons:
        yield ""
        yield from _comparisons(found)
    for note in found.notes:
        yield f"note: {note}"
    yield ""
    yield from conclusions(found)


def _table(found: Measurement) -> Iterator[str]:
    pair = found.pairs[0]
    rows = [("bytes", "before", "after", "difference")]
    rows += [_row("start", pair.before.start, pair.after.start), _row("peak", pair.before.peak, pair.after.peak)]
    for old, new in zip(pair.before.cuda, pair.after.cuda, strict=False):
        rows += _cuda_rows(old, new)
    if found.after is None:
        rows = [(row[0], row[1] if row[1] != "before" else "", "", "") for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield "  ".join(cells).rstrip()
    if found.after is not None:
        yield f"{_pairs(found)}; equal starts in {found.equal_starts} of {len(found.pairs)}; the order alternates"


def _row(name: str, before: int, after: int) -> tuple[str, str, str, str]:
    return name, f"{before:,}", f"{after:,}", f"{after - before:+,}" if after != before else "0"


def _cuda_rows(old: CudaCounters, new: CudaCounters) -> list[tuple[str, str, str, str]]:
    return [
        _row(f"cuda:{old.device} allocated at the start", old.allocated_start, new.allocated_start),
        _row(f"cuda:{old.device} allocated, peak", old.allocated_peak, new.allocated_peak),
        _row(f"cuda:{old.device} reserved, peak", old.reserved_peak, new.reserved_peak),
        _row(f"cuda:{old.device} physical memory free after", old.free_end, new.free_end),
    ]


def _pairs(found: Measurement) -> str:
    """How often the first pair's reduction was seen."""
    count, total = same_reduction(found.pairs), len(found.pairs)
    reduction = found.pairs[0].reduction
    if count == total:
        return (
            f"the peak falls by {reduction:,} bytes in {total} of {total} pairs"
            if reduction > 0
            else (
                f"the peak is the same in {total} of {total} pairs"
                if reduction == 0
                else f"the peak rises by {-reduction:,} bytes in {total} of {total} pairs"
            )
        )
    others = sorted({pair.reduction for pair in found.pairs})
    return f"the peak falls by between {others[0]:,} and {others[-1]:,} bytes in {total} pairs"


def same_reduction(pairs: Sequence[Pair]) -> int:
    """How many pairs show the first pair's reduction."""
    return sum(pair.reduction == pairs[0].reduction for pair in pairs)


def _peak(title: str, report: MeterReport, owned: Sequence[Owned]) -> Iterator[str]:
    live = report.live
    yield f"{title}: {where(report)}"
    if report.line is not None and report.line.text:
        yield f"    {report.line.text}"
    yield f"  alive there: {len(live)} storages, {sum(each.bytes for each in live):,} bytes"
    flagged = {each.storage.serial for each in owned}
    widths = max((len(f"{each.bytes:,}") for each in live[:SHOWN]), default=0)
    for each in live[:SHOWN]:
        mark = "*" if each.serial in flagged else " "
        yield f"  {mark} {each.bytes:>{widths},}  {_described(each)}"
    if len(live) > SHOWN:
        rest = live[SHOWN:]
        yield f"    {sum(each.bytes for each in rest):>{widths},}  in {len(rest)} smaller ones"


def where(report: MeterReport) -> str:
    """The operator and the line of the peak."""
    if report.peak_event is None:
        return "at the start, before the first operator"
    site = report.peak_event.site
    function = f", in {site.line.function}" if site.line is not None else ""
    return f"{site}{function}"


def _described(each: Live) -> str:
    shape = f"{each.dtype} [{', '.join(map(str, each.shape))}]"
    name = each.owner or "(unnamed)"
    if each.site is None:
        return f"{name}  {shape}, there from the start"
    return f"{name}  {shape}, made by {each.site}"


def _owners(found: Measurement) -> Iterator[str]:
    for owner in found.owners:
        code = f"{owner.code} at {short(owner.path)}:{owner.line}, " if owner.code else ""
        yield f"flagged owners (*): {', '.join(owner.names)} ({code}{owner.function})"
    versions = [("before" if found.after is not None else "peak", found.pairs[0].before, found.owned_before)]
    if found.after is not None:
        versions.append(("after", found.pairs[0].after, found.owned_after))
    for title, report, owned in versions:
        alive = [each for each in owned if each.at_peak]
        if not owned:
            yield f"  {title}: none of them held a tensor in this run"
            continue
        total = sum(each.storage.bytes for each in owned)
        if alive:
            names = ", ".join(dict.fromkeys(each.name for each in alive))
            there = sum(each.storage.bytes for each in alive)
            yield f"  {title}: alive at the peak: {names}, {there:,} of {total:,} bytes"
        else:
            none = "its storage was not" if len(owned) == 1 else f"none of the {len(owned)} storages was"
            yield f"  {title}: {none} alive at the peak ({total:,} bytes)"
        last = max((each.storage.died for each in owned if each.storage.died is not None), default=None)
        if last is not None and last < len(report.timeline):
            yield f"    the last of them was gone by the time of {report.timeline[last].site}"


def _comparisons(found: Measurement) -> Iterator[str]:
    total, runs = len(found.comparisons), found.plan.runs
    names = [each.what for each in found.comparisons if each.run == 0]
    small = found.plan.small
    sizes = ", ".join(f"{name}={size}" for name, size in small.sizes.items())
    place = f"{small.device}" + (f", {sizes}" if sizes else "")
    what = ", ".join(names) if len(names) <= SHOWN // 2 else f"{names[0]}, ..., {names[-1]}: {len(names)} tensors"
    yield f"bit for bit: {found.equal} of {total} equal ({runs} runs on {place}: {what})"
    different = [each for each in found.comparisons if not each.equal]
    for each in different[:SHOWN]:
        yield f"  differs: {each.what} in run {each.run}"
    if len(different) > SHOWN:
        yield f"  and {len(different) - SHOWN} more"


def conclusions(found: Measurement) -> Iterator[str]:
    """What the numbers show, in sentences that claim nothing else."""
    if not found.pairs or found.equal_starts < len(found.pairs):
        yield "The starting allocations differ, so the peaks can't be compared."
        return
    if found.after is None:
        yield (
            _alive_sentence(found) if found.owners else "One version was measured; there is nothing to compare it with."
        )
        return
    numbers = "" if found.equal == len(found.comparisons) else " The two versions do not give the same numbers."
    if found.scope == "component":
        yield (f"Component evidence: {_pairs(found)}. What a model gains that contains it was not measured.{numbers}")
        return
    sentence = _alive_sentence(found) if found.owners else ""
    yield f"Whole model: {_pairs(found)}. The peak is at {where(found.pairs[0].before)}. {sentence}{numbers}".strip()


def _alive_sentence(found: Measurement) -> str:
    if not found.owned_before:
        return "The flagged owners held no tensor in this run."
    alive = [each.name for each in found.owned_before if each.at_peak]
    if alive:
        return f"Of the flagged owners, {', '.join(dict.fromkeys(alive))} were alive there."
    return "The flagged owners were not alive there."


def to_dict(found: Measurement, timeline: bool = False) -> dict[str, Any]:
    """A JSON-ready form; the timelines are long and only given if asked for."""
    plan = found.plan
    pair = found.pairs[0]
    return {
        "schema": 1,
        "before": found.before,
        "after": found.after,
        "scope": found.scope,
        "device": plan.setup.device,
        "dtype": str(plan.setup.dtype).removeprefix("torch."),
        "seed": plan.setup.seed,
        "sizes": dict(plan.setup.sizes),
        "inputs": list(found.inputs),
        "mode": plan.mode,
        "pairs": [
            {
                "first": each.first,
                "before": _figures(each.before),
                "after": _figures(each.after) if found.after is not None else None,
                "reduction": each.reduction if found.after is not None else None,
            }
            for each in found.pairs
        ],
        "equal_starts": found.equal_starts,
        "peak_before": pair.before.to_dict(timeline),
        "peak_after": pair.after.to_dict(timeline) if found.after is not None else None,
        "owners": [
            {"function": o.function, "names": list(o.names), "path": o.path, "line": o.line, "code": o.code}
            for o in found.owners
        ],
        "owners_before": [_owned_dict(each) for each in found.owned_before],
        "owners_after": [_owned_dict(each) for each in found.owned_after],
        "comparisons": [{"run": c.run, "what": c.what, "equal": c.equal} for c in found.comparisons],
        "comparisons_equal": found.equal,
        "comparison_sizes": dict(plan.small.sizes),
        "notes": list(found.notes),
        "conclusions": list(conclusions(found)),
        "ok": found.ok,
    }


def _figures(report: MeterReport) -> dict[str, Any]:
    return {"start": report.start, "peak": report.peak, "cuda": [each.to_dict() for each in report.cuda]}


def _owned_dict(each: Owned) -> dict[str, Any]:
    made = site_dict(each.storage.site)
    return {"name": each.name, "bytes": each.storage.bytes, "at_peak": each.at_peak, "made": made}
