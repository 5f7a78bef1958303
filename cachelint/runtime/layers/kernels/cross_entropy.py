"""Cross entropy: the normalizer of each row of logits, and their gradient, each without a softmax in memory.

Rows may be of any width: a program walks over its row block by block.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from cachelint.runtime.layers.kernels import on_device
from cachelint.runtime.layers.kernels.common import block_of, matrix, warps_of, wide_dtype, wide_like

MAX_BLOCK = 4096


@triton.jit
def _normalize(
    logits: Any,
    weight: Any,
    peaks: Any,
    totals: Any,
    weighted: Any,
    width: tl.constexpr,
    WEIGHTED: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    index = tl.program_id(0)
    row = index.to(tl.int64) * width
    peak = tl.full((), -float("inf"), WIDE)
    total = tl.full((), 0.0, WIDE)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        z = tl.load(logits + row + columns, mask=columns < width, other=-float("inf")).to(WIDE)
        new = tl.maximum(peak, tl.max(z, 0))
        base = tl.where(new == -float("inf"), 0.0, new)  # a block of masked logits: -inf - -inf is not a number
        total = total * tl.exp(peak - base) + tl.sum(tl.exp(z - base), 0)
        peak = new
    tl.store(peaks + index, peak)
    tl.store(totals + index, tl.log(total))
    if WEIGHTED:
        part = tl.full((), 0.0, WIDE)
        for start in range(0, width, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            inside = columns < width
            z = tl.load(logits + row + columns, mask=inside, other=0.0).to(WIDE)
            w = tl.load(weight + columns, mask=inside, other=0.0).to(WIDE)
            part += tl.sum(tl.where(inside, w * (z - peak), 0.0), 0)
        tl.store(weighted + index, part)


@triton.jit
def _backward(
    logits: Any,
    targets: Any,
    weight: Any,
    peaks: Any,
    totals: Any,
    whole: Any,
    own: Any,
    share: Any,
    dlogits: Any,
    width: tl.constexpr,
    WEIGHTED: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    index = tl.program_id(0)
    row = index.to(tl.int64) * width
    target = tl.load(targets + index)
    peak = tl.load(peaks + index)
    total = tl.load(totals + index)
    of_all = tl.load(whole + index)
    of_own = tl.load(own + index)
    of_share = tl.load(share + index)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < width
        z = tl.load(logits + row + columns, mask=inside, other=0.0).to(WIDE)
        result = of_all * tl.exp((z - peak) - total) - tl.where(columns == target, of_own, 0.0)
        if WEIGHTED:
            result -= of_share * tl.load(weight + columns, mask=inside, other=0.0).to(WIDE)
        tl.store(dlogits + row + columns, result.to(dlogits.dtype.element_ty), mask=inside)


def normalize(logits: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """For each row z of ``[..., V]``: its peak, ``log sum exp(z - peak)``, and ``sum weight * (z - peak)``.

    Each ``[...]``, in float32 at least; the last one is None without a weight, ``[V]``.
    """
    flat = matrix(logits)
    peaks, totals, weighted = (
        torch.empty(flat.shape[0], dtype=wide_like(logits), device=logits.device) for _ in range(3)
    )
    block = min(block_of(flat.shape[1]), MAX_BLOCK)
    with on_device(logits):
        _normalize[(flat.shape[0],)](
            flat, flat if weight is None else weight.contiguous(), peaks, totals, weighted, flat.shape[1],
            WEIGHTED=weight is not None, WIDE=wide_dtype(logits), BLOCK=block, num_warps=warps_of(block),
        )  # fmt: skip
    shape = logits.shape[:-1]
    return peaks.view(shape), totals.view(shape), None if weight is None else weighted.view(shape)


def logits_backward(
    logits: Tensor,
    index: Tensor,
    weight: Tensor | None,
    peaks: Tensor,
    totals: Tensor,
    factors: tuple[Tensor, Tensor, Tensor],
) -> Tensor:
    """``whole * softmax - own * onehot(index) - share * weight``, in the dtype of the logits ``[..., V]``.

    ``index``, ``peaks``, ``totals`` and the factors whole, own and share are ``[...]``; ``weight`` is ``[V]``.
    """
    flat = matrix(logits)
    dtype = wide_like(logits)
    whole, own, share = (factor.expand(index.shape).reshape(-1).to(dtype).contiguous() for factor in factors)
    dlogits = torch.empty_like(flat)
    block = min(block_of(flat.shape[1]), MAX_BLOCK)
    with on_device(logits):
        _backward[(flat.shape[0],)](
            flat, index.reshape(-1).contiguous(), flat if weight is None else weight.contiguous(),
            peaks.reshape(-1).contiguous(), totals.reshape(-1).contiguous(), whole, own, share, dlogits, flat.shape[1],
            WEIGHTED=weight is not None, WIDE=wide_dtype(logits), BLOCK=block, num_warps=warps_of(block),
        )  # fmt: skip
    return dlogits.view(logits.shape)
