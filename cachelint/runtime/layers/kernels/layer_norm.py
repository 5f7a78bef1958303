"""Layer normalization, forward and backward, each one pass over the rows."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from cachelint.runtime.layers.kernels import on_device
from cachelint.runtime.layers.kernels.common import MAX_PROGRAMS, block_of, matrix, warps_of, wide_dtype, wide_like


@triton.jit
def _forward(
    x: Any,
    gamma: Any,
    beta: Any,
    y: Any,
    width: Any,
    EPS: tl.constexpr,
    HAS_BETA: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * width
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    values = tl.load(x + row + columns, mask=inside, other=0.0).to(WIDE)
    centred = tl.where(inside, values - tl.sum(values, 0) / width, 0.0)
    r = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / width + EPS)
    result = centred * r * tl.load(gamma + columns, mask=inside, other=0.0).to(WIDE)
    if HAS_BETA:
        result += tl.load(beta + columns, mask=inside, other=0.0).to(WIDE)
    tl.store(y + row + columns, result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _backward(
    grad: Any,
    x: Any,
    gamma: Any,
    dx: Any,
    dgamma: Any,
    dbeta: Any,
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
    gain = tl.load(gamma + columns, mask=inside, other=0.0).to(WIDE)
    sum_gamma = tl.zeros((BLOCK,), WIDE)
    sum_beta = tl.zeros((BLOCK,), WIDE)
    index = program
    while index < count:
        row = index.to(tl.int64) * width
        values = tl.load(x + row + columns, mask=inside, other=0.0).to(WIDE)
        g = tl.load(grad + row + columns, mask=inside, other=0.0).to(WIDE)
        centred = tl.where(inside, values - tl.sum(values, 0) / width, 0.0)
        r = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / width + EPS)
        n = centred * r
        d = g * gain
        result = r * (d - tl.sum(d, 0) / width - n * (tl.sum(d * n, 0) / width))
        tl.store(dx + row + columns, result.to(dx.dtype.element_ty), mask=inside)
        sum_gamma += g * n
        sum_beta += g
        index += programs
    tl.store(dgamma + program * width + columns, sum_gamma, mask=inside)
    tl.store(dbeta + program * width + columns, sum_beta, mask=inside)


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor | None, eps: float) -> Tensor:
    """The normalized x, ``[..., N]``; gamma and beta are ``[N]``."""
    flat = matrix(x)
    y = torch.empty_like(flat)
    count, width = flat.shape
    block = block_of(width)
    with on_device(x):
        _forward[(count,)](
            flat, gamma.contiguous(), gamma if beta is None else beta.contiguous(), y, width,
            EPS=eps, HAS_BETA=beta is not None, WIDE=wide_dtype(x), BLOCK=block, num_warps=warps_of(block),
        )  # fmt: skip
    return y.view(x.shape)


def layer_norm_backward(grad: Tensor, x: Tensor, gamma: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, in its dtype, and of gamma and beta, in float32 at least."""
    flat, upstream = matrix(x), matrix(grad)
    dx = torch.empty_like(flat)
    count, width = flat.shape
    programs = min(count, MAX_PROGRAMS)
    dgamma, dbeta = (torch.empty(programs, width, dtype=wide_like(x), device=x.device) for _ in range(2))
    block = block_of(width)
    with on_device(x):
        _backward[(programs,)](
            upstream, flat, gamma.contiguous(), dx, dgamma, dbeta, count, width, programs,
            EPS=eps, WIDE=wide_dtype(x), BLOCK=block, num_warps=warps_of(block),
        )  # fmt: skip
    return dx.view(x.shape), dgamma.sum(0), dbeta.sum(0)
