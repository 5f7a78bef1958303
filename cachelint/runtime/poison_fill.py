"""What a storage is overwritten with to show that it is still read, and how its bytes come back.

Two patterns, because one can be blind: NaN compares false, so a stale argument of ReLU may keep its derivative; a wrong
but finite value flips comparisons. Integers are moved round and bools negated, so an index stays in range: one out of
range would end a CUDA context, and some CPU kernels don't check.
"""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor

from cachelint.runtime.fill import poison_byte


class Pattern(StrEnum):
    """How floating-point values are overwritten: with NaN, or with ``-x - 1``."""

    NAN = "nan"
    WRONG = "wrong"


def contents(storage: torch.UntypedStorage, dtype: torch.dtype = torch.uint8) -> Tensor:
    """A flat tensor of ``dtype`` on ``storage`` itself, as many elements as fit. It has its own version counter."""
    whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    usable = whole.numel() // dtype.itemsize * dtype.itemsize
    return whole[:usable].view(dtype)


def overwrite(storage: torch.UntypedStorage, dtype: torch.dtype, pattern: Pattern) -> Tensor:
    """Overwrite ``storage``, which holds elements of ``dtype``, and return its old bytes."""
    with torch.no_grad():
        old = contents(storage).clone()
        values = contents(storage, dtype)
        if dtype is torch.bool:
            values.logical_not_()
        elif not (dtype.is_floating_point or dtype.is_complex):
            values.copy_(_moved(values))
        elif pattern is Pattern.NAN:
            contents(storage).fill_(poison_byte(dtype, storage.device.type) or 0)
        else:
            wide = values.to(torch.promote_types(dtype, torch.float32)) if dtype.itemsize > 1 else values.float()
            values.copy_((-torch.nan_to_num(wide, nan=0.0, posinf=1.0, neginf=-1.0) - 1).to(dtype))
    return old


def _moved(values: Tensor) -> Tensor:
    """Other values of the same range: the elements one place on, or where that changes nothing, 0 or 1."""
    moved = values.roll(1)
    if not torch.equal(moved, values):
        return moved
    return torch.ones_like(values) if not bool(values.any()) else torch.zeros_like(values)


def restore(storage: torch.UntypedStorage, old: Tensor) -> None:
    """Put the bytes back that :func:`overwrite` returned."""
    with torch.no_grad():
        contents(storage).copy_(old)
