"""Memory for one step: one slab per device, given out by a bump pointer and taken back at once by a reset."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from cachelint.runtime.errors import RuntimeContractError
from cachelint.runtime.placement import OnStale, PlacementMode
from cachelint.runtime.slab import Slab, SlabStats
from cachelint.runtime.span import Span, pin, span_of


class Arena:
    """One slab of ``capacity`` bytes on each of ``devices``.

    ``with arena.place():`` puts every new tensor of the block there; ``reset`` takes everything back that is not
    pinned. With ``poison`` the memory taken back is overwritten (NaN, a sentinel for integers, negated bools), and so
    is memory given out again uninitialised, so that a late read can't go unseen.

    Work on CUDA must run on one stream, or be synchronised by the caller before a reset, as with any allocator that
    reuses memory in stream order.
    """

    def __init__(
        self,
        capacity: int,
        devices: Iterable[torch.device | str] = ("cpu",),
        *,
        alignment: int = 256,
        poison: bool = False,
    ) -> None:
        self.slabs: dict[torch.device, Slab] = {}
        for device in map(_with_index, devices):
            self.slabs[device] = Slab(capacity, device, alignment, poison)
        if not self.slabs:
            raise ValueError("an arena needs a device")

    @property
    def poison(self) -> bool:
        """Whether memory that is taken back is overwritten."""
        return any(slab.poison for slab in self.slabs.values())

    @property
    def epoch(self) -> int:
        """How often the arena was reset."""
        return next(iter(self.slabs.values())).epoch

    def place(self, on_stale: OnStale = "raise") -> PlacementMode:
        """A context in which every new tensor of this thread on one of the devices goes into the arena.

        ``on_stale="raise"`` (the default) raises ``UseAfterReset`` when an operator is given memory that a reset has
        taken back; ``"allow"`` lets it read what is there now.
        """
        return PlacementMode(self.slabs, on_stale)

    def move(self, tensor: Tensor) -> Tensor:
        """A copy of ``tensor`` in the arena."""
        with torch.no_grad(), self.place():
            return tensor.clone()

    def reset(self, *, rewind: bool = True) -> int:
        """Take back everything that is not pinned, on every device; how many allocations that were.

        ``rewind=False`` leaves the bump pointer where it is until the next reset: for checks. What is taken back then
        stays poison, where otherwise new memory, with the very same values if a computation is repeated, is laid over.
        """
        return sum(slab.reset(rewind) for slab in self.slabs.values())

    def mark_floor(self) -> None:
        """Never take back what is in the arena now: weights, captured graphs."""
        for slab in self.slabs.values():
            slab.mark_floor()

    def owns(self, tensor: Tensor) -> bool:
        """Whether ``tensor`` is memory of this arena, alive or dead, in a slab or overflowed."""
        span = span_of(tensor)
        return span is not None and any(span.owner is slab for slab in self.slabs.values())

    def pin(self, tensor: Tensor) -> Span | None:
        """Keep the storage of ``tensor`` over resets; ``Span.unpin`` on the result ends that. None if not ours."""
        return pin(tensor) if self.owns(tensor) else None

    def unpin(self, tensor: Tensor) -> None:
        """Take back one pin on the storage of ``tensor``.

        Raises:
            RuntimeContractError: it is not memory of this arena, or not pinned.
        """
        span = span_of(tensor)
        if span is None or not self.owns(tensor):
            raise RuntimeContractError("the tensor to unpin is not memory of this arena")
        span.unpin()

    def stats(self, device: torch.device | str | None = None) -> SlabStats:
        """The counts of the slab on ``device``, by default the first one."""
        if device is None:
            return next(iter(self.slabs.values())).stats()
        return self.slabs[_with_index(device)].stats()


def _with_index(device: torch.device | str) -> torch.device:
    """The device as tensors name it: people say ``cuda``, tensors ``cuda:0``."""
    return torch.empty(0, device=device).device
