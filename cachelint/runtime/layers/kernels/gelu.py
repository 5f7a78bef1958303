"""GELU, exact and by tanh, forward and backward, each one elementwise pass."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from cachelint.runtime.layers.kernels import on_device
from cachelint.runtime.layers.kernels.common import ELEMENTWISE_BLOCK, wide_dtype

# tanh(u) = 2 * sigmoid(2u) - 1, and 2u = SLOPE * (x + CUBIC * x^3).
SLOPE = tl.constexpr(2 * math.sqrt(2 / math.pi))
CUBIC = tl.constexpr(0.044715)
SQRT_HALF = tl.constexpr(math.sqrt(0.5))
DENSITY = tl.constexpr(1 / math.sqrt(2 * math.pi))


@triton.jit
def _forward(x: Any, y: Any, count: Any, EXACT: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr) -> None:
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    values = tl.load(x + index, mask=inside, other=0.0).to(WIDE)
    if EXACT:  # noqa: SIM108  (the compiler takes one of the branches)
        share = 0.5 * (1.0 + tl.erf(values * SQRT_HALF))
    else:
        share = 1.0 / (1.0 + tl.exp(-values * (SLOPE + SLOPE * CUBIC * values * values)))
    tl.store(y + index, (values * share).to(y.dtype.element_ty), mask=inside)


@triton.jit
def _backward(
    grad: Any, x: Any, dx: Any, count: Any, EXACT: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    values = tl.load(x + index, mask=inside, other=0.0).to(WIDE)
    g = tl.load(grad + index, mask=inside, other=0.0).to(WIDE)
    square = values * values
    if EXACT:
        slope = 0.5 * (1.0 + tl.erf(values * SQRT_HALF)) + values * tl.exp(-0.5 * square) * DENSITY
    else:
        s = 1.0 / (1.0 + tl.exp(-values * (SLOPE + SLOPE * CUBIC * square)))
        slope = s + s * (1.0 - s) * values * (SLOPE + 3 * SLOPE * CUBIC * square)
    tl.store(dx + index, (g * slope).to(dx.dtype.element_ty), mask=inside)


def gelu(x: Tensor, *, exact: bool) -> Tensor:
    """``x * Phi(x)``, or its tanh approximation unless ``exact``. Any shape."""
    flat = x.reshape(-1)
    y = torch.empty_like(flat)
    with on_device(x):
        _forward[(triton.cdiv(flat.numel(), ELEMENTWISE_BLOCK),)](
            flat, y, flat.numel(), EXACT=exact, WIDE=wide_dtype(x), BLOCK=ELEMENTWISE_BLOCK
        )
    return y.view(x.shape)


def gelu_backward(grad: Tensor, x: Tensor, *, exact: bool) -> Tensor:
    """The gradient of x, given the gradient of ``gelu(x)``; in the dtype of x."""
    flat, upstream = x.reshape(-1), grad.reshape(-1)
    dx = torch.empty_like(flat)
    with on_device(x):
        _backward[(triton.cdiv(flat.numel(), ELEMENTWISE_BLOCK),)](
            upstream, flat, dx, flat.numel(), EXACT=exact, WIDE=wide_dtype(x), BLOCK=ELEMENTWISE_BLOCK
        )
    return dx.view(x.shape)
