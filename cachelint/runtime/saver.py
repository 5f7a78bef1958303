"""Save for backward: what a layer registers, and who owns its memory until the layer's backward has run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from cachelint.runtime.span import Span, pin
from cachelint.runtime.walk import Walkable, walk


@runtime_checkable
class Saver(Protocol):
    """Takes tensors that a node's backward will read."""

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Record ``tensors`` and pin their memory; None is ignored. No copy is made."""


class SaverAware(Walkable):
    """A layer that registers what its backward reads. Without a saver the numbers are the same."""

    _saver: Saver | None = None

    def set_saver(self, saver: Saver | None) -> None:
        """Bind this layer to ``saver``, or to none. A builder hands it to the children too."""
        self._saver = saver

    @property
    def saver(self) -> Saver | None:
        """The saver that this layer is bound to, None outside a graph."""
        return self._saver

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Register ``tensors`` with the saver, if there is one; None is ignored."""
        if self._saver is not None:
            self._saver.save_for_backward(*tensors)

    def __getstate__(self) -> dict[str, Any]:
        """A copy of a layer is outside the graph of the original, so it has no saver."""
        return {name: value for name, value in self.__dict__.items() if name != "_saver"}


class Saved(NamedTuple):
    """One registered tensor with the arena memory that was pinned for it, None if it is not arena memory."""

    tensor: Tensor
    span: Span | None


class SavedSets:
    """The saved set of each node of one graph, under one lock.

    Every save makes its own entry and its own pin, also for a tensor or a storage that is there already; every entry is
    unpinned once.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the garbage collector may release another graph's sets at any point
        self._sets: dict[Hashable, list[Saved]] = {}

    def add(self, owner: Hashable, tensors: tuple[Tensor | None, ...]) -> None:
        """Append ``tensors`` to the set of ``owner`` and pin them."""
        entries: list[Saved] = []
        try:
            for tensor in tensors:
                if tensor is not None:
                    entries.append(Saved(tensor, pin(tensor)))
        finally:  # a pin that raises leaves the earlier ones to the release
            with self._lock:
                self._sets.setdefault(owner, []).extend(entries)

    def release(self, owner: Hashable) -> int:
        """Unpin and drop the set of ``owner``; how many entries it had."""
        with self._lock:
            entries = self._sets.pop(owner, [])
        for entry in entries:
            if entry.span is not None:
                entry.span.unpin()
        return len(entries)

    def release_all(self) -> int:
        """Unpin and drop every set; how many entries there were."""
        with self._lock:
            owners = list(self._sets)
        return sum(self.release(owner) for owner in owners)

    def tensors(self, owner: Hashable) -> tuple[Tensor, ...]:
        """What ``owner`` has registered and not released, in order, duplicates included."""
        with self._lock:
            return tuple(entry.tensor for entry in self._sets.get(owner, ()))

    def __len__(self) -> int:
        """How many entries all the sets have."""
        with self._lock:
            return sum(map(len, self._sets.values()))


class NodeSaver:
    """A saver bound to one owner of one collection of saved sets."""

    def __init__(self, sets: SavedSets, owner: Hashable) -> None:
        self._sets = sets
        self.owner = owner

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Record ``tensors`` in the owner's saved set."""
        self._sets.add(self.owner, tensors)


class SharedSaver:
    """A saver for a child that several owners share: what it saves belongs to the owner that is running."""

    def __init__(self, sets: SavedSets, running: Callable[[], Hashable], fallback: Hashable) -> None:
        self._sets = sets
        self._running = running
        self._fallback = fallback

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Record ``tensors`` in the saved set of the owner that runs in this thread."""
        owner = self._running()
        self._sets.add(self._fallback if owner is None else owner, tensors)


class RecordingSaver:
    """Keeps what it is given, in order and by identity. For tests of what a layer registers."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Append ``tensors``, None left out."""
        self.tensors.extend(tensor for tensor in tensors if tensor is not None)


def saver_aware(root: object) -> Iterator[tuple[str, SaverAware]]:
    """``root`` if it takes a saver, and everything below it that does, each once, with its path."""
    if isinstance(root, SaverAware):
        yield "", root
    for path, value in walk(root):
        if isinstance(value, SaverAware):
            yield path, value


def wire(root: object, saver: Saver | None) -> int:
    """Hand ``saver`` to every SaverAware object that ``root`` reaches, once each; how many there were."""
    found = list(saver_aware(root))
    for _, layer in found:
        layer.set_saver(saver)
    return len(found)
