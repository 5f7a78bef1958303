"""Softmax over the last axis, forward and backward, each one pass over the rows."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from cachelint.runtime.layers.kernels import on_device
from cachelint.runtime.layers.kernels.common import block_of, matrix, warps_of, wide_dtype


@triton.jit
def _forward(x: Any, y: Any, width: Any, WIDE: tl.constexpr, BLOCK: tl.constexpr) -> None:
    row = tl.program_id(0).to(tl.int64) * width
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    values = tl.load(x + row + columns, mask=inside, other=-float("inf")).to(WIDE)
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + row + columns, (powers / tl.sum(powers, 0)).to(y.dtype.element_ty), mask=inside)


@triton.jit
def _backward(grad: Any, y: Any, dx: Any, width: Any, WIDE: tl.constexpr, BLOCK: tl.constexpr) -> None:
    row = tl.program_id(0).to(tl.int64) * width
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    values = tl.load(y + row + columns, mask=inside, other=0.0).to(WIDE)
    product = tl.load(grad + row + columns, mask=inside, other=0.0).to(WIDE) * values
    result = product - values * tl.sum(product, 0)
    tl.store(dx + row + columns, result.to(dx.dtype.element_ty), mask=inside)


def softmax(x: Tensor) -> Tensor:
    """The softmax of each row of x, ``[..., N]``."""
    flat = matrix(x)
    y = torch.empty_like(flat)
    block = block_of(flat.shape[1])
    with on_device(x):
        _forward[(flat.shape[0],)](flat, y, flat.shape[1], WIDE=wide_dtype(x), BLOCK=block, num_warps=warps_of(block))
    return y.view(x.shape)


def softmax_backward(grad: Tensor, y: Tensor) -> Tensor:
    """The gradient of x, given ``y = softmax(x)`` and its gradient; in the dtype of y."""
    flat, upstream = matrix(y), matrix(grad)
    dx = torch.empty_like(flat)
    block = block_of(flat.shape[1])
    with on_device(y):
        _backward[(flat.shape[0],)](
            upstream, flat, dx, flat.shape[1], WIDE=wide_dtype(y), BLOCK=block, num_warps=warps_of(block)
        )
    return dx.view(y.shape)
