"""Arithmetic that many layers share."""

from __future__ import annotations

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """``x`` in the precision that formulas are computed in: float32 for half precision, else ``x`` itself."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def rows(x: Tensor) -> Tensor:
    """``x`` as a matrix: every axis but the last one flattened, ``[..., N]`` to ``[R, N]``."""
    return x.reshape(-1, x.shape[-1])


def sum_leading(x: Tensor) -> Tensor:
    """Sum over every axis but the last one: ``[..., N]`` to ``[N]``."""
    return rows(x).sum(0)
