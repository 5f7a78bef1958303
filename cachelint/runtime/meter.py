"""Peak allocated bytes of any torch code, on any device, the meta device and fake tensors included.

The meter is a dispatch mode. After each operator it looks at the storages of the arguments and results; each storage
counts once, rounded up to 512 bytes as the CUDA caching allocator does, from the operator that made it until the last
reference to it goes. Storages that were there before (parameters, inputs) are the starting allocation. Backward is seen
too: the autograd engine calls its operators under the mode that was active when backward was called.

What an operator allocates and frees inside its own kernel (a workspace) is not seen: the dispatcher doesn't show it.
Where CUDA is in use its own counters are read beside the meter's.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from cachelint.runtime.meter_report import BEFORE, CudaCounters, Event, Live, MeterReport
from cachelint.runtime.sites import Line, Site, frames, lines
from cachelint.runtime.storages import key_of, rounded, size_of, storages_of, tensors_in


@dataclass(frozen=True, slots=True)
class _Handle:
    """The storage at address ``key`` while it lives; ``token`` tells it from a later one at the same address."""

    key: int
    token: int
    ref: weakref.ref[torch.UntypedStorage]


class _Record:
    """One storage, at one size, for one stretch of the run: alive at operator i if born <= i < died."""

    __slots__ = (
        "born",
        "bytes",
        "device",
        "died",
        "dtype",
        "final",
        "handle",
        "label",
        "nbytes",
        "serial",
        "shape",
        "site",
    )

    def __init__(
        self, serial: int, part: Tensor, nbytes: int, born: int, site: Site | None, label: str, handle: _Handle
    ) -> None:
        self.serial = serial
        self.nbytes = nbytes
        self.bytes = rounded(nbytes)
        self.shape = tuple(int(n) for n in part.shape)
        self.dtype = str(part.dtype).removeprefix("torch.")
        self.device = str(part.device)
        self.born = born
        self.died: int | None = None
        self.site = site
        self.label = label
        self.handle = handle
        self.final = True  # of the storages that one statement makes, the last: the one that its name holds

    def live(self) -> Live:
        owner = self.label or (self.site.owner if self.site is not None and self.final else "")
        return Live(
            self.serial,
            self.bytes,
            self.nbytes,
            self.shape,
            self.dtype,
            self.device,
            self.site,
            owner,
            self.born,
            self.died,
        )


class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts live storages while it is active: ``with Meter(start=...) as meter: ...; meter.report()``.

    ``start`` names tensors that are there before: a mapping from name to tensor, or a sequence of tensors. A tensor
    that is not named and turns up as an argument was there before too, and is added to the start when first seen.
    ``device`` (a type such as ``"cuda"``) limits the account to tensors of one kind of device. ``watch`` is called with
    the user frames of each operator, for those who look for the owners of storages; it must not keep frames or tensors.

    One meter may be entered again inside itself (it counts once), again after it was left (it goes on), and in several
    threads. Different meters nest; each has its own account.
    """

    def __init__(
        self,
        start: Mapping[str, Tensor] | Sequence[Tensor] = (),
        *,
        device: str | None = None,
        watch: Callable[[Meter, list[FrameType]], None] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self._watch = watch
        self._lock = threading.RLock()
        self._depth = threading.local()
        self._entered = 0
        # Finalizers only append here, which no lock is needed for: they may run in the middle of anything.
        self._gone: deque[tuple[int, int]] = deque()
        self._table: dict[int, _Record] = {}
        self._records: list[_Record] = []
        self._events: list[tuple[Site, int, int, int]] = []
        self._forward_lines: dict[int, Line] = {}
        self._first_sequence = 0
        self._start = 0
        self._change = 0
        self._peak_change = 0
        self._peak_index = BEFORE
        self._opaque = 0
        self._statement: tuple[tuple[Line, ...], list[_Record]] = ((), [])
        self._cuda_start: dict[int, tuple[int, int]] = {}
        self._cuda_peak: dict[int, tuple[int, int]] = {}
        named = start.items() if isinstance(start, Mapping) else ((f"start[{i}]", t) for i, t in enumerate(start))
        for name, tensor in named:
            for storage, part in storages_of(tensor):
                self._note(storage, part, None, name)

    # ---- entering and leaving ------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Start counting in this thread."""
        depth = getattr(self._depth, "value", 0)
        if depth == 0:
            super().__enter__()  # type: ignore[no-untyped-call]
            self._first_sequence = _sequence()
            with self._lock:
                if self._entered == 0:
                    self._enter_cuda()
                self._entered += 1
        self._depth.value = depth + 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop counting in this thread. Storages that die later are still taken off."""
        self._depth.value -= 1
        if self._depth.value == 0:
            super().__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]
            with self._lock:
                self._entered -= 1
                if self._entered == 0:
                    self._fold_cuda()

    # ---- counting ------------------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call ``func`` and take stock of the storages of its arguments and results."""
        kwargs = kwargs or {}
        site = self._site(func)
        fresh = func is torch.ops.aten.lift_fresh.default  # its argument was made outside the dispatcher just now
        with self._lock:
            freed = self._drain()
            before = self._change
            for tensor in tensors_in((args, kwargs)):
                self._see(tensor, site if fresh else None)
        result = func(*args, **kwargs)
        with self._lock:
            within = self._drain()
            # Arguments again: an operator may have resized one, or given it another storage.
            for tensor in tensors_in((args, kwargs)):
                self._see(tensor, site)
            for tensor in tensors_in(result):
                self._see(tensor, site)
            self._settle(site, result)
            self._resized(site)
            index = len(self._events)
            self._events.append((site, self._change, self._change - before + within, freed + within))
            if self._change > self._peak_change:
                self._peak_change, self._peak_index = self._change, index
        return result

    def _site(self, func: Any) -> Site:
        found, called = frames(sys._getframe(2))
        if self._watch is not None:
            self._watch(self, found)
        stack = lines(found)
        del found  # frames hold tensors
        node = _node()
        if node is None:
            sequence = _sequence() - 1
            if stack and sequence >= self._first_sequence:
                self._forward_lines.setdefault(sequence, stack[0])
            return Site(str(func), stack)
        forward = None if called else self._forward_lines.get(node._sequence_nr())
        return Site(str(func), stack, node.name(), forward)

    def _see(self, tensor: Tensor, site: Site | None) -> None:
        """Note the storages of ``tensor`` that are not known yet: made at ``site``, or there before if that is None."""
        if self._device is not None and tensor.device.type != self._device:
            return
        found = False
        for storage, part in storages_of(tensor):
            found = True
            record = self._table.get(key_of(storage))
            if record is None:
                self._note(storage, part, site, "")
            elif record.nbytes != (size := size_of(storage)):
                self._resize(record, part, size, site)
        if not found and site is not None:
            self._opaque += 1

    def _settle(self, site: Site, result: object) -> None:
        """What the statement made before and does not show again was a step on the way, which no name holds."""
        shown = {key_of(storage) for tensor in tensors_in(result) for storage, _ in storages_of(tensor)}
        stack, before = self._statement
        if stack == site.stack:
            for earlier in before:
                earlier.final = earlier.handle.key in shown
        made = [record for key in shown if (record := self._table.get(key)) is not None and record.site is site]
        self._statement = (site.stack, [*before, *made] if stack == site.stack else made)

    def _note(self, storage: torch.UntypedStorage, part: Tensor, site: Site | None, label: str) -> None:
        if key_of(storage) in self._table or (self._device is not None and part.device.type != self._device):
            return
        handle = self._handle(storage)
        born = len(self._events) if site is not None else BEFORE
        record = _Record(len(self._records), part, size_of(storage), born, site, label, handle)
        self._table[handle.key] = record
        self._records.append(record)
        if site is None:
            self._start += record.bytes
        else:
            self._change += record.bytes

    def _handle(self, storage: torch.UntypedStorage) -> _Handle:
        name = (key_of(storage), len(self._records))
        gone = self._gone
        return _Handle(*name, weakref.ref(storage, lambda _: gone.append(name)))

    def _resize(self, record: _Record, part: Tensor, size: int, site: Site | None) -> None:
        """The storage goes on under another size: the old record ends and a new one begins."""
        now = len(self._events)
        record.died = now
        # A storage that grew outside an operator keeps the place where it was made.
        after = _Record(len(self._records), part, size, now, site or record.site, record.label, record.handle)
        self._table[record.handle.key] = after
        self._records.append(after)
        self._change += after.bytes - record.bytes

    def _resized(self, site: Site) -> None:
        """Find storages that were resized behind the dispatcher's back (``untyped_storage().resize_``)."""
        for record in list(self._table.values()):  # every storage after every operator: no calls that can be saved
            storage = record.handle.ref()
            if storage is not None and storage.nbytes() != record.nbytes:
                shown = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
                self._resize(record, shown, size_of(storage), site)

    def _drain(self) -> int:
        """Take what has died off the account; how many bytes."""
        freed = 0
        while self._gone:
            key, token = self._gone.popleft()
            record = self._table.get(key)
            if record is not None and record.handle.token == token:
                del self._table[key]
                record.died = len(self._events)
                freed += record.bytes
        self._change -= freed
        return freed

    # ---- results -------------------------------------------------------------------------------------------------

    @property
    def start_bytes(self) -> int:
        """Bytes that were there before the first operator."""
        return self._start

    @property
    def current_bytes(self) -> int:
        """Bytes alive now."""
        with self._lock:
            self._drain()
            return self._start + self._change

    @property
    def peak_bytes(self) -> int:
        """The most bytes alive at once, the start included."""
        return self._start + self._peak_change

    def serial_of(self, storage: torch.UntypedStorage) -> int | None:
        """The serial number of ``storage`` in this run, None if it was not seen."""
        record = self._table.get(key_of(storage))
        return record.serial if record is not None and record.handle.ref() is storage else None

    def live_at(self, index: int) -> tuple[Live, ...]:
        """What was alive when operator ``index`` returned, largest first. ``BEFORE`` asks for the start."""
        return self.report().live_at(index)

    def report(self) -> MeterReport:
        """The account so far."""
        with self._lock:
            current = self.current_bytes
            events = tuple(
                Event(index, site, self._start + change, added, freed)
                for index, (site, change, added, freed) in enumerate(self._events)
            )
            return MeterReport(
                start=self._start,
                current=current,
                peak=self.peak_bytes,
                peak_event=events[self._peak_index] if self._peak_index != BEFORE else None,
                storages=tuple(record.live() for record in self._records),
                timeline=events,
                cuda=self._cuda_counters(),
                opaque=self._opaque,
            )

    # ---- CUDA's own counters -------------------------------------------------------------------------------------

    def _enter_cuda(self) -> None:
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return
        for mode in _get_current_dispatch_mode_stack():
            if isinstance(mode, Meter) and mode is not self:
                mode._fold_cuda()  # the reset below would lose the outer meter's peak
        for device in range(torch.cuda.device_count()):
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            if device not in self._cuda_start:
                self._cuda_start[device] = (torch.cuda.memory_allocated(device), torch.cuda.mem_get_info(device)[0])

    def _fold_cuda(self) -> None:
        for device in self._cuda_start:
            torch.cuda.synchronize(device)
            allocated, reserved = self._cuda_peak.get(device, (0, 0))
            allocated = max(allocated, torch.cuda.max_memory_allocated(device))
            self._cuda_peak[device] = (allocated, max(reserved, torch.cuda.max_memory_reserved(device)))

    def _cuda_counters(self) -> tuple[CudaCounters, ...]:
        if self._entered:
            self._fold_cuda()
        return tuple(
            CudaCounters(
                device, allocated, *self._cuda_peak.get(device, (0, 0)), free, torch.cuda.mem_get_info(device)[0]
            )
            for device, (allocated, free) in sorted(self._cuda_start.items())
        )


def _sequence() -> int:
    """The number that this thread's next autograd node gets."""
    return int(torch._C._autograd._get_sequence_nr())  # type: ignore[attr-defined,unused-ignore]


def _node() -> Any:
    """The autograd node that the engine is running in this thread, if any."""
    return torch._C._current_autograd_node()  # type: ignore[attr-defined,unused-ignore]
