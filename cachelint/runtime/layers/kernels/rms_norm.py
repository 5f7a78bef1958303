"""Root mean square normalization, forward and backward, each one pass over the rows."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from cachelint.runtime.layers.kernels import on_device
from cachelint.runtime.layers.kernels.common import MAX_PROGRAMS, block_of, matrix, warps_of, wide_dtype, wide_like


@triton.jit
def _forward(x: Any, gain: Any, y: Any, width: Any, EPS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr) -> None:
    row = tl.program_id(0).to(tl.int64) * width
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    values = tl.load(x + row + columns, mask=inside, other=0.0).to(WIDE)
    r = 1.0 / tl.sqrt(tl.sum(values * values, 0) / width + EPS)
    result = values * r * tl.load(gain + columns, mask=inside, other=0.0).to(WIDE)
    tl.store(y + row + columns, result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _backward(
    grad: Any,
    x: Any,
    gain: Any,
    dx: Any,
    dgain: Any,
    count: Any,
    width: Any,
    programs: Any,
    EPS: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    slope = tl.load(gain + columns, mask=inside, other=0.0).to(WIDE)
    total = tl.zeros((BLOCK,), WIDE)
    index = program
    while index < count:
        row = index.to(tl.int64) * width
        values = tl.load(x + row + columns, mask=inside, other=0.0).to(WIDE)
        g = tl.load(grad + row + columns, mask=inside, other=0.0).to(WIDE)
        r = 1.0 / tl.sqrt(tl.sum(values * values, 0) / width + EPS)
        n = values * r
        d = g * slope
        result = r * (d - n * (tl.sum(d * n, 0) / width))
        tl.store(dx + row + columns, result.to(dx.dtype.element_ty), mask=inside)
        total += g * n
        index += programs
    tl.store(dgain + program * width + columns, total, mask=inside)


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """The normalized x, ``[..., N]``; gain is ``[N]``."""
    flat = matrix(x)
    y = torch.empty_like(flat)
    count, width = flat.shape
    block = block_of(width)
    with on_device(x):
        _forward[(count,)](
            flat, gain.contiguous(), y, width,
            EPS=eps, WIDE=wide_dtype(x), BLOCK=block, num_warps=warps_of(block),
        )  # fmt: skip
    return y.view(x.shape)


def rms_norm_backward(grad: Tensor, x: Tensor, gain: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The gradients of x, in its dtype, and of gain, in float32 at least."""
    flat, upstream = matrix(x), matrix(grad)
    dx = torch.empty_like(flat)
    count, width = flat.shape
    programs = min(count, MAX_PROGRAMS)
    dgain = torch.empty(programs, width, dtype=wide_like(x), device=x.device)
    block = block_of(width)
    with on_device(x):
        _backward[(programs,)](
            upstream, flat, gain.contiguous(), dx, dgain, count, width, programs,
            EPS=eps, WIDE=wide_dtype(x), BLOCK=block, num_warps=warps_of(block),
        )  # fmt: skip
    return dx.view(x.shape), dgain.sum(0)
