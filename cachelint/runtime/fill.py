"""What freed arena memory is overwritten with, so that a late read shows.

The bytes are chosen so that every element is wrong whatever width it is read in: 0xFF repeated is a NaN as float64,
float32, float16, bfloat16 and the NaN of the 8-bit floats (0x80 for the ``fnuz`` ones).
"""

from __future__ import annotations

import torch
from torch import Tensor

FLOAT_BYTE = 0xFF
FNUZ_BYTE = 0x80
INTEGER_BYTE = 0xA5


def poison_byte(dtype: torch.dtype, device_type: str) -> int | None:
    """The byte that poisons ``dtype``; None for bool, whose elements are negated instead.

    Integers become a large negative number (165 as uint8) on the CPU and 0 on CUDA: an index out of range there is a
    device-side assertion, which ends the context of the whole process.
    """
    if dtype is torch.bool:
        return None
    if dtype.is_floating_point or dtype.is_complex:
        return FNUZ_BYTE if "fnuz" in str(dtype) else FLOAT_BYTE
    return INTEGER_BYTE if device_type == "cpu" else 0


def poison_used(region: Tensor, dtype: torch.dtype) -> None:
    """Overwrite ``region``, the bytes (uint8) of elements of ``dtype`` that nobody may read any more."""
    byte = poison_byte(dtype, region.device.type)
    if byte is None:
        region.bitwise_xor_(1)
    else:
        region.fill_(byte)


def poison_fresh(region: Tensor, dtype: torch.dtype) -> None:
    """Overwrite ``region``, which is about to be given out uninitialised; bools become True."""
    byte = poison_byte(dtype, region.device.type)
    region.fill_(1 if byte is None else byte)
