"""One block of memory on one device: bump allocation, pins, and the reset that takes everything else back."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from cachelint.runtime.errors import RuntimeContractError, UseAfterReset
from cachelint.runtime.fill import poison_fresh, poison_used
from cachelint.runtime.span import Span, tag


@dataclass(frozen=True, slots=True)
class SlabStats:
    """Counts of one slab. All sizes in bytes, rounded up to the alignment.

    ``used`` is the bump pointer, ``high_water`` its greatest value ever, ``floor`` where the last reset rewound to.
    ``overflows`` and ``overflow_bytes`` count allocations that found no room, since the slab was made.
    """

    capacity: int
    used: int
    high_water: int
    floor: int
    epoch: int
    allocations: int
    allocated_bytes: int
    overflows: int
    overflow_bytes: int
    pins: int
    pinned_bytes: int
    pinned_high_water: int
    poisoned_bytes: int
    live_spans: int


class Slab:
    """Memory that is given out by a bump pointer and taken back by ``reset``, except what is pinned.

    A reset rewinds to the end of the highest pinned span. Holes below that stay unusable, but they are dead and
    poisoned like everything else that is not pinned. An allocation that finds no room comes from the ordinary
    allocator; it obeys the same rules (dead after a reset unless pinned), so that a fault does not vanish where the
    slab happens to be too small.
    """

    def __init__(self, capacity: int, device: torch.device, alignment: int = 256, poison: bool = False) -> None:
        if alignment < 16 or alignment & (alignment - 1):
            raise ValueError(f"alignment is a power of two of at least 16, not {alignment}")
        self.device = device
        self.alignment = alignment
        self.poison = poison
        self.capacity = capacity - capacity % alignment
        block = torch.empty(self.capacity + alignment, dtype=torch.uint8, device=device)
        start = -block.data_ptr() % alignment
        # Through DLPack for a storage of its own: an absolute as_strided offset then counts from the aligned start.
        self._bytes: Tensor = from_dlpack(to_dlpack(block[start : start + self.capacity]))
        self._typed: dict[torch.dtype, Tensor] = {}
        self._lock = threading.RLock()
        self._spans: dict[int, Span] = {}
        self._overflow: dict[int, tuple[Span, weakref.ref[torch.UntypedStorage]]] = {}
        self._kept_below = 0
        self._used = 0
        self._floor = 0
        self._epoch = 0
        self._high_water = 0
        self._allocations = 0
        self._allocated = 0
        self._overflows = 0
        self._overflow_bytes = 0
        self._pins = 0
        self._pinned = 0
        self._pinned_high_water = 0
        self._poisoned = 0

    @property
    def epoch(self) -> int:
        """How often the slab was reset."""
        return self._epoch

    # ---- allocation

    def allocate(
        self, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, nbytes: int, fresh: bool = True
    ) -> Tensor | None:
        """A tensor with a storage of its own in the slab, contents undefined; None without room.

        ``nbytes`` is what ``size`` and ``stride`` span. With poison on, a ``fresh`` one is poisoned; otherwise the
        caller overwrites it at once.
        """
        span = self._take(nbytes, dtype, fresh)
        if span is None:
            return None
        typed = self._typed.get(dtype)
        if typed is None:
            typed = self._typed[dtype] = self._bytes.view(dtype)
        found = from_dlpack(to_dlpack(typed.as_strided(size, stride, span.offset // dtype.itemsize)))
        tag(found, span)
        return found

    def allocate_bytes(self, nbytes: int, dtype: torch.dtype, fresh: bool = True) -> Tensor | None:
        """``nbytes`` bytes as uint8 with their own storage, for a storage that holds ``dtype``; None without room."""
        span = self._take(nbytes, dtype, fresh)
        if span is None:
            return None
        found: Tensor = from_dlpack(to_dlpack(self._bytes[span.offset : span.offset + nbytes]))
        tag(found, span)
        return found

    def _take(self, nbytes: int, dtype: torch.dtype, fresh: bool) -> Span | None:
        size = self._round(nbytes)
        with self._lock:
            if self._used + size > self.capacity:
                self._overflows += 1
                self._overflow_bytes += size
                return None
            span = Span(self, self._used, nbytes, dtype, self._epoch)
            self._used += size
            self._high_water = max(self._high_water, self._used)
            self._allocations += 1
            self._allocated += size
            self._spans[id(span)] = span
            if self.poison and fresh:
                with torch.no_grad():
                    poison_fresh(self._bytes[span.offset : span.offset + nbytes], dtype)
            return span

    def adopt(self, tensor: Tensor) -> None:
        """Put ``tensor``, which found no room and came from the ordinary allocator, under the rules of the slab."""
        storage = tensor.untyped_storage()
        with self._lock:
            span = Span(self, -1, storage.nbytes(), tensor.dtype, self._epoch)
            tag(tensor, span)
            key = id(span)
            self._overflow[key] = (span, weakref.ref(storage, lambda _: self._overflow.pop(key, None)))

    # ---- pins

    def pin(self, span: Span) -> None:
        """Keep ``span`` over resets until as many ``unpin``.

        Raises:
            UseAfterReset: it is dead already.
        """
        with self._lock:
            if not span.alive:
                raise UseAfterReset(f"pinned after a reset had taken it back: {span}", span=span)
            span.pins += 1
            self._pins += 1
            if span.pins == 1:
                self._pinned += span.size
                self._pinned_high_water = max(self._pinned_high_water, self._pinned)

    def unpin(self, span: Span) -> None:
        """Take back one pin. Without the last one the span lives on until the next reset, and no longer.

        Raises:
            RuntimeContractError: there is no pin to take back.
        """
        with self._lock:
            if span.pins == 0:
                raise RuntimeContractError(f"unpinned more often than pinned: {span}")
            span.pins -= 1
            self._pins -= 1
            if span.pins == 0:
                self._pinned -= span.size

    # ---- reset

    def reset(self, rewind: bool = True) -> int:
        """Take back everything that is not pinned; how many spans that were. ``rewind`` as in ``Arena.reset``."""
        with self._lock:
            spans = list(self._spans.values()) + [span for span, _ in list(self._overflow.values())]
            dead = [span for span in spans if not span.pins and (span.offset < 0 or span.end > self._kept_below)]
            for span in dead:
                self._end(span)
            pinned_end = max((span.end for span in spans if span.pins), default=0)
            self._floor = max(self._kept_below, self._round(pinned_end))
            self._used = self._floor if rewind else self._used
            self._epoch += 1
            return len(dead)

    def mark_floor(self) -> int:
        """Never take back what is allocated now, pinned or not; the offset of that floor."""
        with self._lock:
            self._kept_below = self._used
            self._overflow.clear()  # what nobody tracks, no reset ends
            return self._used

    def _round(self, size: int) -> int:
        return -(-size // self.alignment) * self.alignment

    def _end(self, span: Span) -> None:
        if not span.alive:
            return
        span.alive = False
        region = self._region(span) if self.poison else None
        if region is not None:
            with torch.no_grad():
                poison_used(region, span.dtype)
            self._poisoned += span.size
        self._spans.pop(id(span), None)
        self._overflow.pop(id(span), None)

    def _region(self, span: Span) -> Tensor | None:
        """The bytes of ``span``; None for an overflow allocation that nobody holds any more."""
        if span.offset >= 0:
            return self._bytes[span.offset : span.offset + span.size]
        entry = self._overflow.get(id(span))
        storage = entry[1]() if entry is not None else None
        if storage is None:
            return None
        return torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage, 0, (span.size,), (1,))

    def stats(self) -> SlabStats:
        """The counts now."""
        with self._lock:
            return SlabStats(
                capacity=self.capacity,
                used=self._used,
                high_water=self._high_water,
                floor=self._floor,
                epoch=self._epoch,
                allocations=self._allocations,
                allocated_bytes=self._allocated,
                overflows=self._overflows,
                overflow_bytes=self._overflow_bytes,
                pins=self._pins,
                pinned_bytes=self._pinned,
                pinned_high_water=self._pinned_high_water,
                poisoned_bytes=self._poisoned,
                live_spans=len(self._spans) + len(self._overflow),
            )
