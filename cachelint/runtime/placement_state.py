"""Whether this thread's new tensors may go into an arena: asked by the placement mode, set around persistent memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_state = threading.local()


def suspended() -> bool:
    """Whether placement is switched off in this thread."""
    return getattr(_state, "depth", 0) > 0


@contextmanager
def outside_arena() -> Iterator[None]:
    """Tensors made in this block come from the ordinary allocator, also inside ``Arena.place()``.

    For memory that outlives a step: gradients of parameters, optimizer state, weights.
    """
    _state.depth = getattr(_state, "depth", 0) + 1
    try:
        yield
    finally:
        _state.depth -= 1
