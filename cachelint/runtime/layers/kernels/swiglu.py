"""SwiGLU, forward and backward, each one elementwise pass over both halves of the rows."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from cachelint.runtime.layers.kernels import on_device
from cachelint.runtime.layers.kernels.common import ELEMENTWISE_BLOCK, matrix, wide_dtype


@triton.jit
def _forward(x: Any, y: Any, count: Any, half: Any, WIDE: tl.constexpr, BLOCK: tl.constexpr) -> None:
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    place = x + index // half * (2 * half) + index % half
    gate = tl.load(place, mask=inside, other=0.0).to(WIDE)
    up = tl.load(place + half, mask=inside, other=0.0).to(WIDE)
    tl.store(y + index, (gate / (1.0 + tl.exp(-gate)) * up).to(y.dtype.element_ty), mask=inside)


@triton.jit
def _backward(grad: Any, x: Any, dx: Any, count: Any, half: Any, WIDE: tl.constexpr, BLOCK: tl.constexpr) -> None:
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    offset = index // half * (2 * half) + index % half
    gate = tl.load(x + offset, mask=inside, other=0.0).to(WIDE)
    up = tl.load(x + offset + half, mask=inside, other=0.0).to(WIDE)
    g = tl.load(grad + index, mask=inside, other=0.0).to(WIDE)
    s = 1.0 / (1.0 + tl.exp(-gate))
    dgate = g * up * s * (1.0 + gate * (1.0 - s))
    tl.store(dx + offset, dgate.to(dx.dtype.element_ty), mask=inside)
    tl.store(dx + offset + half, (g * gate * s).to(dx.dtype.element_ty), mask=inside)


def swiglu(x: Tensor) -> Tensor:
    """``gate * sigmoid(gate) * up`` with ``[gate, up]`` the halves of the last axis: ``[..., 2D]`` to ``[..., D]``."""
    flat = matrix(x)
    half = flat.shape[1] // 2
    y = torch.empty(flat.shape[0], half, dtype=x.dtype, device=x.device)
    with on_device(x):
        _forward[(triton.cdiv(y.numel(), ELEMENTWISE_BLOCK),)](
            flat, y, y.numel(), half, WIDE=wide_dtype(x), BLOCK=ELEMENTWISE_BLOCK
        )
    return y.view(*x.shape[:-1], half)


def swiglu_backward(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of x, given the gradient of ``swiglu(x)``; in the dtype of x."""
    flat, upstream = matrix(x), matrix(grad)
    dx = torch.empty_like(flat)
    count = upstream.numel()
    with on_device(x):
        _backward[(triton.cdiv(count, ELEMENTWISE_BLOCK),)](
            upstream, flat, dx, count, flat.shape[1] // 2, WIDE=wide_dtype(x), BLOCK=ELEMENTWISE_BLOCK
        )
    return dx.view(x.shape)
