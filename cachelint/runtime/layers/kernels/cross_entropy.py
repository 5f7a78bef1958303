"""Cross entropy of each row of logits, and their gradient, each without a softmax in memory.

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
def _statistics(logits: Any, width: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr) -> Any:
    """The peak of a row, and the sum of the powers below it."""
    peak = tl.full((), -float("inf"), WIDE)
    total = tl.full((), 0.0, WIDE)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        z = tl.load(logits + columns, mask=columns < width, other=-float("inf")).to(WIDE)
        new = tl.maximum(peak, tl.max(z, 0))
        base = tl.where(new == -float("inf"), 0.0, new)  # a block of masked logits: -inf - -inf is not a number
        total = total * tl.exp(peak - base) + tl.sum(tl.exp(z - base), 0)
        peak = new
    return peak, total


@triton.jit
def _forward(
    logits: Any,
    targets: Any,
    weight: Any,
    picked: Any,
    weighted: Any,
    width: tl.constexpr,
    WEIGHTED: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    index = tl.program_id(0)
    row = index.to(tl.int64) * width
    peak, total = _statistics(logits + row, width, WIDE, BLOCK)
    height = tl.log(total)
    target = tl.load(targets + index)
    tl.store(picked + index, tl.load(logits + row + target).to(WIDE) - peak - height)
    if WEIGHTED:
        part = tl.full((), 0.0, WIDE)
        for start in range(0, width, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            inside = columns < width
            z = tl.load(logits + row + columns, mask=inside, other=0.0).to(WIDE)
            w = tl.load(weight + columns, mask=inside, other=0.0).to(WIDE)
            part += tl.sum(tl.where(inside, w * (z - peak - height), 0.0), 0)
        tl.store(weighted + index, part)


@triton.jit
def _backward(
    logits: Any,
    targets: Any,
    weight: Any,
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
    of_all = tl.load(whole + index)
    of_own = tl.load(own + index)
    of_share = tl.load(share + index)
    peak, total = _statistics(logits + row, width, WIDE, BLOCK)
    for start in range(0, width, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < width
        z = tl.load(logits + row + columns, mask=inside, other=0.0).to(WIDE)
        result = of_all * (tl.exp(z - peak) / total) - tl.where(columns == target, of_own, 0.0)
        if WEIGHTED:
            result -= of_share * tl.load(weight + columns, mask=inside, other=0.0).to(WIDE)
        tl.store(dlogits + row + columns, result.to(dlogits.dtype.element_ty), mask=inside)


def log_probabilities(logits: Tensor, index: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Of ``p = log softmax(logits)``, ``[..., V]``: its entry at ``index``, and ``sum weight * p`` over the last axis.

    Each ``[...]``, in float32 at least; the second one is None without a weight, ``[V]``.
    """
    flat = matrix(logits)
    picked, weighted = (torch.empty(flat.shape[0], dtype=wide_like(logits), device=logits.device) for _ in range(2))
    block = min(block_of(flat.shape[1]), MAX_BLOCK)
    with on_device(logits):
        _forward[(flat.shape[0],)](
            flat, index.reshape(-1).contiguous(), flat if weight is None else weight.contiguous(), picked, weighted,
            flat.shape[1], WEIGHTED=weight is not None, WIDE=wide_dtype(logits), BLOCK=block, num_warps=warps_of(block),
        )  # fmt: skip
    shape = logits.shape[:-1]
    return picked.view(shape), None if weight is None else weighted.view(shape)


def logits_backward(
    logits: Tensor, index: Tensor, weight: Tensor | None, factors: tuple[Tensor, Tensor, Tensor]
) -> Tensor:
    """``whole * softmax - own * onehot(index) - share * weight``, in the dtype of the logits ``[..., V]``.

    ``index`` and the factors whole, own and share are ``[...]``; ``weight`` is ``[V]``.
    """
    flat = matrix(logits)
    dtype = wide_like(logits)
    whole, own, share = (factor.expand(index.shape).reshape(-1).to(dtype).contiguous() for factor in factors)
    dlogits = torch.empty_like(flat)
    block = min(block_of(flat.shape[1]), MAX_BLOCK)
    with on_device(logits):
        _backward[(flat.shape[0],)](
            flat, index.reshape(-1).contiguous(), flat if weight is None else weight.contiguous(), whole, own, share,
            dlogits, flat.shape[1],
            WEIGHTED=weight is not None, WIDE=wide_dtype(logits), BLOCK=block, num_warps=warps_of(block),
        )  # fmt: skip
    return dlogits.view(logits.shape)
