"""The rotation of pairs of features, one pass; with the sine negated it is its own backward."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from cachelint.runtime.layers.kernels import on_device
from cachelint.runtime.layers.kernels.common import ELEMENTWISE_BLOCK, block_of, matrix, wide_dtype


@triton.jit
def _rotate(
    x: Any,
    cos: Any,
    sin: Any,
    y: Any,
    count: Any,
    length: Any,
    rows_per_table: Any,
    width: Any,
    half: Any,
    STEP: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    pair = tl.arange(0, HALF)
    inside = (row < count)[:, None] & (pair < half)[None, :]
    angle = ((row // rows_per_table * length + row % length) * half)[:, None] + pair[None, :]
    c = tl.load(cos + angle, mask=inside, other=0.0).to(WIDE)
    s = tl.load(sin + angle, mask=inside, other=0.0).to(WIDE)
    if STEP == 1:  # features i and i + half
        first = (row * width)[:, None] + pair[None, :]
        second = first + half
    else:  # features 2i and 2i + 1
        first = (row * width)[:, None] + 2 * pair[None, :]
        second = first + 1
    a = tl.load(x + first, mask=inside, other=0.0).to(WIDE)
    b = tl.load(x + second, mask=inside, other=0.0).to(WIDE)
    tl.store(y + first, (a * c - b * s).to(y.dtype.element_ty), mask=inside)
    tl.store(y + second, (b * c + a * s).to(y.dtype.element_ty), mask=inside)
    if REST > 0:
        column = 2 * half + tl.arange(0, REST)
        place = (row * width)[:, None] + column[None, :]
        passes = (row < count)[:, None] & (column < width)[None, :]
        tl.store(y + place, tl.load(x + place, mask=passes), mask=passes)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool) -> Tensor:
    """x, ``[..., S, D]``, with its first ``2 * H`` features rotated.

    ``cos`` and ``sin``: ``[S, H]`` for all rows, or ``[B, 1, ..., S, H]``, a table for each entry of x's first axis.
    Pair i is features i and ``i + H``, or 2i and 2i + 1 if ``interleaved``.
    """
    flat = matrix(x)
    y = torch.empty_like(flat)
    count, width = flat.shape
    half = cos.shape[-1]
    tables = 1 if cos.dim() == 2 else cos.shape[0]
    block = block_of(half)
    rows = max(1, ELEMENTWISE_BLOCK // block)
    rest = width - 2 * half
    with on_device(x):
        _rotate[(triton.cdiv(count, rows),)](
            flat, cos.contiguous(), sin.contiguous(), y, count, x.shape[-2], count // tables, width, half,
            STEP=2 if interleaved else 1, WIDE=wide_dtype(x), ROWS=rows, HALF=block, REST=block_of(rest) if rest else 0,
        )  # fmt: skip
    return y.view(x.shape)
