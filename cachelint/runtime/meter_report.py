"""What a meter has counted, as frozen values: the peak, what was alive there, and the timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cachelint.runtime.sites import Line, Site, short

BEFORE = -1
"""The index of what was there before the first operator."""


@dataclass(frozen=True, slots=True)
class Live:
    """One storage that was alive at a point of the run.

    ``bytes`` are rounded up to whole blocks, ``nbytes`` exact. ``shape`` and ``dtype`` are those of the first tensor
    seen on the storage. ``site`` is where it was made, None if it was there before the run. ``owner`` is its name in
    the start, else the name that its statement assigns it to; empty for a step on the way and what the engine makes.
    ``serial`` counts the storages of the run in the order in which they were seen. It was alive when operator ``i``
    returned if ``born <= i < died``; ``born`` is -1 for what was there before, ``died`` None for what is alive still.
    """

    serial: int
    bytes: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: str
    device: str
    site: Site | None
    owner: str
    born: int
    died: int | None

    def alive_at(self, index: int) -> bool:
        """Whether it was alive when operator ``index`` returned; -1 asks for the start."""
        return self.born <= index and (self.died is None or self.died > index)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {
            "bytes": self.bytes,
            "nbytes": self.nbytes,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "device": self.device,
            "owner": self.owner,
            "made": site_dict(self.site),
        }


@dataclass(frozen=True, slots=True)
class Event:
    """One operator call: the bytes alive when it returned, and how many it added and how many had gone since the last.

    ``index`` counts the calls from 0.
    """

    index: int
    site: Site
    current: int
    added: int
    freed: int

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        made = site_dict(self.site)
        return {"index": self.index, "bytes": self.current, "added": self.added, "freed": self.freed, "at": made}


@dataclass(frozen=True, slots=True)
class CudaCounters:
    """CUDA's own figures for one device, in bytes, read beside the meter's.

    ``allocated_start`` and ``allocated_peak``: ``torch.cuda.memory_allocated`` on entry and ``max_memory_allocated`` of
    the run. ``reserved_peak``: ``max_memory_reserved``. ``free_start`` and ``free_end``: physical memory free on the
    device (``torch.cuda.mem_get_info``) before and after.
    """

    device: int
    allocated_start: int
    allocated_peak: int
    reserved_peak: int
    free_start: int
    free_end: int

    def to_dict(self) -> dict[str, int]:
        """A JSON-ready form."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class MeterReport:
    """The account of one run, in bytes.

    ``start`` was there before the first operator, ``current`` is alive now, ``peak`` is the most that was alive at
    once. ``peak_event`` is the operator call that reached the peak (None: the start was the most). ``storages`` are all
    that were seen, in the order of their making. ``opaque`` counts results whose memory torch can't name; they are in
    no figure.
    """

    start: int
    current: int
    peak: int
    peak_event: Event | None
    storages: tuple[Live, ...]
    timeline: tuple[Event, ...]
    cuda: tuple[CudaCounters, ...] = ()
    opaque: int = 0

    @property
    def live(self) -> tuple[Live, ...]:
        """What was alive at the peak, largest first."""
        return self.live_at(self.peak_event.index if self.peak_event is not None else BEFORE)

    def live_at(self, index: int) -> tuple[Live, ...]:
        """What was alive when operator ``index`` returned, largest first. ``BEFORE`` asks for the start."""
        found = [each for each in self.storages if each.alive_at(index) and each.bytes]
        return tuple(sorted(found, key=lambda each: (-each.bytes, each.serial)))

    @property
    def line(self) -> Line | None:
        """The source line at the peak, if there is one."""
        return self.peak_event.site.line if self.peak_event is not None else None

    def to_dict(self, timeline: bool = False) -> dict[str, Any]:
        """A JSON-ready form; the timeline is long and only given if asked for."""
        found: dict[str, Any] = {
            "start": self.start,
            "current": self.current,
            "peak": self.peak,
            "peak_at": self.peak_event.to_dict() if self.peak_event is not None else None,
            "live": [each.to_dict() for each in self.live],
            "cuda": [each.to_dict() for each in self.cuda],
            "opaque": self.opaque,
        }
        if timeline:
            found["timeline"] = [each.to_dict() for each in self.timeline]
        return found


def site_dict(site: Site | None) -> dict[str, Any] | None:
    """A JSON-ready form of a site; None for what was there before the run."""
    if site is None:
        return None
    line = site.line
    return {
        "op": site.op,
        "path": short(line.path) if line is not None else None,
        "line": line.line if line is not None else None,
        "function": line.function if line is not None else None,
        "text": line.text if line is not None else "",
        "node": site.node,
    }
