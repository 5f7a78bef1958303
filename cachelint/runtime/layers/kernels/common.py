"""What every kernel of this package shares: the dtype that it computes in and the size of its blocks."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ELEMENTWISE_BLOCK = 1024
MAX_PROGRAMS = 256
"""How many programs share the rows of a backward that also sums over them."""


def wide_dtype(x: Tensor) -> Any:
    """The dtype that a kernel computes in, as Triton names it: float64 for float64, else float32."""
    return tl.float64 if x.dtype is torch.float64 else tl.float32


def wide_like(x: Tensor) -> torch.dtype:
    """The same as torch names it."""
    return torch.promote_types(x.dtype, torch.float32)


def block_of(width: int) -> int:
    """The power of two that holds a row of ``width`` elements."""
    return int(triton.next_power_of_2(max(width, 1)))


def warps_of(block: int) -> int:
    """How many warps work on a block."""
    return max(1, min(16, block // 256))


def matrix(x: Tensor) -> Tensor:
    """``[..., N]`` as contiguous ``[R, N]``."""
    return x.reshape(-1, x.shape[-1]).contiguous()
