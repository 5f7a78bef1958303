"""Notes what forward makes and what it registers, so that the rest can be overwritten before backward.

Made: every storage that an operator's result brings up. Registered: whatever passes a saved-tensor hook, which is all
that built-in operators and ``save_for_backward`` save, and what hooks of the code under test keep in its place. Hooks
that are installed already, or get installed on the way, do their work as before.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from cachelint.runtime.poison_fill import Pattern, overwrite, restore
from cachelint.runtime.sites import Site, frames, lines
from cachelint.runtime.storages import key_of, storages_of, tensors_in

Hook = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Held:
    """A storage that was still alive before backward, and that nothing registered.

    ``kind`` is ``intermediate``, ``input`` or ``output``; ``number`` counts within the kind, in the order of making, so
    that the same storage has the same pair in every run. ``path`` is who holds it, empty if no receiver does.
    """

    kind: str
    number: int
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    made: Site | None
    path: str

    @property
    def key(self) -> tuple[str, int]:
        """The same in every run of the same code."""
        return self.kind, self.number

    def __str__(self) -> str:
        """``intermediate ctx.rstd, float32 [4, 1], made by aten.rsqrt.default at layer.py:12``."""
        who = self.path or f"number {self.number}"
        what = f"{self.kind} {who}, {self.dtype} {list(self.shape)}"
        return what + (f", made by {self.made}" if self.made is not None else "")


class _Entry:
    __slots__ = ("dtype", "kind", "number", "ref", "registered", "shape", "site")

    def __init__(self, kind: str, number: int, storage: torch.UntypedStorage, part: Tensor, site: Site | None) -> None:
        self.kind = kind
        self.number = number
        self.ref = weakref.ref(storage)
        self.shape = tuple(part.shape)
        self.dtype = part.dtype
        self.site = site
        self.registered = False


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """``with Watch() as watch: y = f(x)``, then ``watch.strike(...)`` before backward, ``watch.restore()`` after it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._table: dict[int, _Entry] = {}
        self._made = 0
        self._old: list[tuple[weakref.ref[torch.UntypedStorage], Tensor]] = []
        self._push: Any = None

    # ---- noting --------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Start noting, in this thread and in the backward that it calls."""
        super().__enter__()  # type: ignore[no-untyped-call]
        hooks: Any = torch._C._autograd
        below = hooks._top_saved_tensors_default_hooks(True)
        push = hooks._push_saved_tensors_default_hooks
        pack, unpack = below if below is not None else (_same, _same)
        push(self._noting(pack), unpack)
        # Hooks of the code under test would hide what they are given: they are pushed with a note in front.
        self._push = push
        hooks._push_saved_tensors_default_hooks = lambda pack, unpack: push(self._noting(pack), unpack)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop noting."""
        hooks: Any = torch._C._autograd
        hooks._push_saved_tensors_default_hooks = self._push
        hooks._pop_saved_tensors_default_hooks()
        super().__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call ``func`` and note the storages that are new in its results."""
        kwargs = kwargs or {}
        if func is not torch.ops.aten.lift_fresh.default:  # whose argument was made outside the dispatcher just now
            for tensor in tensors_in((args, kwargs)):
                self._note(tensor, "old", None)
        result = func(*args, **kwargs)
        made = list(tensors_in(result))
        if made:
            found, _ = frames(sys._getframe(1))
            site = Site(str(func), lines(found))
            del found
            for tensor in made:
                self._note(tensor, "intermediate", site)
        return result

    def _note(self, tensor: Tensor, kind: str, site: Site | None) -> None:
        for storage, part in storages_of(tensor):
            key = key_of(storage)
            entry = self._table.get(key)
            if entry is not None and entry.ref() is storage:
                continue
            if kind == "intermediate" and not storage.resizable():
                kind = "old"  # memory of someone else, such as an array of numpy
            self._table[key] = _Entry(kind, self._made, storage, part, site)
            self._made += kind == "intermediate"

    def inputs(self, tensors: Iterable[Tensor]) -> None:
        """Note the inputs, before forward."""
        for number, tensor in enumerate(tensors):
            for storage, part in storages_of(tensor):
                self._table[key_of(storage)] = _Entry("input", number, storage, part, None)

    def register(self, *tensors: Tensor | None) -> None:
        """Note that ``tensors`` are under the contract, the whole storage of each."""
        for tensor in tensors:
            if tensor is None:
                continue
            for storage, part in storages_of(tensor):
                known = self._table.get(key_of(storage))
                if known is None or known.ref() is not storage:
                    known = self._table[key_of(storage)] = _Entry("old", 0, storage, part, None)
                known.registered = True

    save_for_backward = register
    """A watch is a saver: what a SaverAware layer hands it is registered."""

    def _noting(self, pack: Hook) -> Hook:
        def noting(tensor: Tensor) -> Any:
            self.register(tensor)
            packed = pack(tensor)
            self.register(*_inside(packed))
            return packed

        return noting

    # ---- striking ------------------------------------------------------------------------------------------------

    def _candidates(self, outputs: Iterable[Tensor]) -> Iterator[tuple[torch.UntypedStorage, _Entry, str, int]]:
        """The storages that are alive and registered nowhere, with their kind and number."""
        ends: dict[int, int] = {}
        for number, tensor in enumerate(outputs):
            for storage, _ in storages_of(tensor):
                ends.setdefault(key_of(storage), number)
        for key, entry in list(self._table.items()):
            alive = entry.ref()
            if alive is None or entry.registered or entry.kind == "old" or not alive.nbytes():
                continue
            if entry.kind == "intermediate" and key in ends:
                yield alive, entry, "output", ends[key]
            else:
                yield alive, entry, entry.kind, entry.number

    def held(self, outputs: Sequence[Tensor], paths: Mapping[int, str]) -> list[Held]:
        """What is alive and registered nowhere. ``outputs`` are known to the caller; ``paths`` names the holders."""
        return [
            Held(
                kind=kind,
                number=number,
                shape=entry.shape,
                dtype=str(entry.dtype).removeprefix("torch."),
                nbytes=storage.nbytes(),
                made=entry.site,
                path=paths.get(key_of(storage), ""),
            )
            for storage, entry, kind, number in self._candidates(outputs)
        ]

    def registered(self) -> int:
        """How many storages that are still alive were registered."""
        return sum(entry.registered and entry.ref() is not None for entry in self._table.values())

    def strike(self, chosen: Iterable[tuple[str, int]], pattern: Pattern, outputs: Sequence[Tensor]) -> None:
        """Overwrite the storages whose ``Held.key`` is among ``chosen``; ``restore`` takes it back."""
        wanted = set(chosen)
        with _disable_current_modes():
            for storage, entry, kind, number in self._candidates(outputs):
                if (kind, number) in wanted:
                    self._old.append((entry.ref, overwrite(storage, entry.dtype, pattern)))

    def restore(self) -> None:
        """Put back what every strike has overwritten."""
        with _disable_current_modes():
            while self._old:
                ref, old = self._old.pop()
                struck = ref()
                if struck is not None and struck.nbytes() == old.numel():
                    restore(struck, old)


def _same(value: Any) -> Any:
    return value


def _inside(packed: object) -> Iterator[Tensor]:
    """The tensors of what a pack hook returned: a tensor, a container, or an object with tensors in its attributes."""
    yield from tensors_in(packed)
    if not isinstance(packed, Tensor | list | tuple | Mapping):
        yield from tensors_in(getattr(packed, "__dict__", {}))
