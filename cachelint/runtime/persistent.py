"""Memory that outlives the step: pinned until it is invalidated."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from torch import Tensor

from cachelint.runtime.parameter import Parameter
from cachelint.runtime.span import Span, pin


class Persistent:
    """A tensor kept over steps: dequantised weights, recurrent state.

    A saver's pins end with the node's backward; these end with ``invalidate``, with the next ``set``, when one of the
    ``watch``\\ ed parameters has changed, or with this object. A copy of this object (``copy.deepcopy``) is empty.
    """

    def __init__(self, *watch: Parameter, name: str = "") -> None:
        self.name = name
        self._watch = watch
        self._value: Tensor | None = None
        self._seen: tuple[tuple[int, int], ...] = ()
        self._unpin: weakref.finalize[..., Persistent] | None = None

    def set(self, value: Tensor) -> Tensor:
        """Keep ``value`` and pin its memory, in place of what was kept; gives ``value``."""
        span = pin(value)  # before the release: the new value may live in the same storage
        self.invalidate()
        self._value = value
        self._seen = self._versions()
        if span is not None:
            self._unpin = weakref.finalize(self, _unpin, span)
            self._unpin.atexit = False
        return value

    def get(self) -> Tensor | None:
        """What is kept; None if nothing is, or if a watched parameter was written or replaced since ``set``."""
        if self._value is not None and self._seen != self._versions():
            self.invalidate()
        return self._value

    def fetch(self, make: Callable[[], Tensor]) -> Tensor:
        """What is kept, or ``set(make())`` if there is nothing valid."""
        value = self.get()
        return self.set(make()) if value is None else value

    def invalidate(self) -> None:
        """Drop what is kept and unpin its memory."""
        self._value = None
        if self._unpin is not None:
            self._unpin()
            self._unpin = None

    def _versions(self) -> tuple[tuple[int, int], ...]:
        return tuple((id(parameter.value), _version(parameter.value)) for parameter in self._watch)

    def __deepcopy__(self, memo: dict[int, object]) -> Persistent:
        """An empty one that watches the copies of the watched parameters."""
        import copy

        return Persistent(*copy.deepcopy(self._watch, memo), name=self.name)


def _version(tensor: Tensor) -> int:
    """How often ``tensor`` was written in place; inference tensors don't count."""
    return 0 if tensor.is_inference() else tensor._version


def _unpin(span: Span) -> None:
    span.unpin()
