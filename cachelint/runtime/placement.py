"""The dispatch mode that places every new tensor of a block in an arena, so that ordinary torch code runs in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cachelint.runtime.errors import UseAfterReset
from cachelint.runtime.placement_state import suspended
from cachelint.runtime.slab import Slab
from cachelint.runtime.span import Span, span_of

OnStale = Literal["raise", "allow"]

_aten = torch.ops.aten
_UNINITIALISED = {
    _aten.empty.memory_format,
    _aten.empty_strided.default,
    _aten.empty_like.default,
    _aten.new_empty.default,
    _aten.new_empty_strided.default,
}
_DLPACK = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_DLPACK |= {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128}


class PlacementMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Copies each result with a storage of its own into the slab of its device; views and in-place results are left.

    ``on_stale="raise"`` refuses an operator that is given memory which a reset has taken back.
    """

    def __init__(self, slabs: Mapping[torch.device, Slab], on_stale: OnStale) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._slabs = slabs
        self._on_stale = on_stale

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run ``func`` and place what it made."""
        kwargs = kwargs or {}
        if suspended():
            return func(*args, **kwargs)
        known = set()
        for tensor in _tensors((args, kwargs)):
            span = span_of(tensor)
            if span is not None and not span.alive and self._on_stale == "raise":
                raise UseAfterReset(
                    f"{func} reads or writes {_describe(tensor)}, memory that {_ended(span)}", span=span
                )
            known.add(_key(tensor))
        result = _run(func, args, kwargs)
        if func is _aten.lift_fresh.default and _made_by_torch(result):
            known = set()  # the literal of torch.tensor(...), which nobody else holds
        placed: dict[int, Tensor] = {}
        return _mapped(result, lambda tensor: self._place(tensor, known, placed, func in _UNINITIALISED))

    def _place(self, tensor: Tensor, known: set[int], placed: dict[int, Tensor], uninitialised: bool) -> Tensor:
        key = _key(tensor)
        if key == 0 or key in known or type(tensor) is not Tensor:
            return tensor
        slab = self._slabs.get(tensor.device)
        storage = tensor.untyped_storage()
        nbytes = storage.nbytes()
        if slab is None or nbytes == 0 or (key not in placed and span_of(tensor) is not None):
            return tensor
        if key not in placed and nbytes == tensor.numel() * tensor.itemsize and _dense(tensor):
            found = slab.allocate(tensor.shape, tensor.stride(), tensor.dtype, nbytes, uninitialised)
            if found is None:
                slab.adopt(tensor)
                known.add(key)
                return tensor
            if not uninitialised:
                found.copy_(tensor)
            placed[key] = found
            return found
        if key not in placed:
            block = slab.allocate_bytes(nbytes, tensor.dtype, uninitialised)
            if block is None:
                slab.adopt(tensor)
                known.add(key)
                return tensor
            if not uninitialised:
                block.copy_(_aliasing(storage, torch.uint8, tensor.device, 0, (nbytes,), (1,)))
            placed[key] = block
        home = placed[key].untyped_storage()
        return _aliasing(home, tensor.dtype, tensor.device, int(tensor.storage_offset()), tensor.shape, tensor.stride())


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``func``; if it wants to grow a tensor that is memory of a slab, move that one out first."""
    try:
        return func(*args, **kwargs)
    except RuntimeError as error:
        written = [t for t in _written(func, args, kwargs) if span_of(t) is not None]
        if "not resizable" not in str(error) or not written:
            raise
        for tensor in written:
            _move_out(tensor)
        return func(*args, **kwargs)


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors(args[index] if index < len(args) else kwargs.get(argument.name))


def _move_out(tensor: Tensor) -> None:
    """Give ``tensor`` a storage of the ordinary allocator with the same contents."""
    old = tensor.untyped_storage()
    copy = torch.empty(old.nbytes(), dtype=torch.uint8, device=tensor.device)
    copy.copy_(_aliasing(old, torch.uint8, tensor.device, 0, (old.nbytes(),), (1,)))
    # The refused operator may have left a size behind that the storage can't hold; it is about to set its own.
    tensor.set_(copy.untyped_storage(), int(tensor.storage_offset()), (0,), (1,))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _tensors(member)
    elif isinstance(value, dict):
        for member in value.values():
            yield from _tensors(member)


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list):
        return [_mapped(member, change) for member in value]
    if isinstance(value, tuple):
        members = [_mapped(member, change) for member in value]
        return type(value)(*members) if hasattr(value, "_fields") else type(value)(members)
    return value


def _key(tensor: Tensor) -> int:
    """The identity of the storage of ``tensor``, 0 if it has none in plain memory."""
    if tensor.layout is not torch.strided:
        return 0
    try:
        found: int = tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return 0
    return found


def _dense(tensor: Tensor) -> bool:
    """Whether size and stride say everything: no offset, no gap, no overlap, and a dtype that DLPack knows."""
    if tensor.dtype not in _DLPACK:
        return False
    return tensor.storage_offset() == 0 and (tensor.is_contiguous() or _is_permuted(tensor))


def _is_permuted(tensor: Tensor) -> bool:
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _made_by_torch(tensor: Tensor) -> bool:
    """Whether the memory is torch's own: that of NumPy and other owners is not resizable and is never moved."""
    return _key(tensor) != 0 and tensor.untyped_storage().resizable()


def _aliasing(
    storage: torch.UntypedStorage, dtype: torch.dtype, device: torch.device, offset: int, size: Any, stride: Any
) -> Tensor:
    return torch.empty(0, dtype=dtype, device=device).set_(storage, offset, size, stride)


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _ended(span: Span) -> str:
    return f"was given out in epoch {span.epoch} and taken back by a reset (now epoch {span.owner.epoch})"
