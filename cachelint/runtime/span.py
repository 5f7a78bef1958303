"""One allocation of an arena: where it lies, whether it still lives, how often it is pinned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

_TAG = "_cachelint_span"


class SpanOwner(Protocol):
    """What a span asks of the slab that it lies in."""

    @property
    def epoch(self) -> int:
        """How often the slab was reset."""

    def pin(self, span: Span) -> None:
        """Count one more pin on ``span``."""

    def unpin(self, span: Span) -> None:
        """Count one pin less on ``span``."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Span:
    """``size`` bytes at ``offset`` of a slab, given out in ``epoch``. An overflow allocation has offset -1."""

    owner: SpanOwner = field(repr=False)
    offset: int
    size: int
    dtype: torch.dtype
    epoch: int
    pins: int = 0
    alive: bool = True

    @property
    def end(self) -> int:
        """The offset after the last byte; 0 for an overflow allocation, which holds no bytes of the slab."""
        return self.offset + self.size if self.offset >= 0 else 0

    def unpin(self) -> None:
        """Take back one pin."""
        self.owner.unpin(self)


def tag(tensor: Tensor, span: Span) -> None:
    """Note on the storage of ``tensor`` which span it is. Storages keep their Python attributes for life."""
    setattr(tensor.untyped_storage(), _TAG, span)


def span_of(tensor: Tensor) -> Span | None:
    """The span that owns the memory of ``tensor``, a view or not; None if it is not arena memory."""
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # sparse and other tensors without a storage
        return None
    found: Span | None = getattr(storage, _TAG, None)
    return found


def pin(tensor: Tensor) -> Span | None:
    """Pin the storage that ``tensor`` lives in, the whole of it also for a view. None if it is not arena memory.

    Raises:
        UseAfterReset: a reset has taken the memory back already.
    """
    span = span_of(tensor)
    if span is not None:
        span.owner.pin(span)
    return span
