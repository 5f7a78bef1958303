"""Features to heads and back."""

from __future__ import annotations

from torch import Tensor


def split_heads(x: Tensor, heads: int) -> Tensor:
    """``[B, S, heads * D]`` to ``[B, heads, S, D]``, a view."""
    return x.view(*x.shape[:-1], heads, -1).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """``[B, H, S, D]`` to ``[B, S, H * D]``."""
    return x.transpose(1, 2).flatten(2)


def repeat_heads(x: Tensor, times: int) -> Tensor:
    """Each head ``times`` times in a row: ``[B, H, S, D]`` to ``[B, H * times, S, D]``."""
    return x if times == 1 else x.repeat_interleave(times, 1)


def sum_repeated(x: Tensor, times: int) -> Tensor:
    """The gradient of ``repeat_heads``: the sum over each head's repetitions."""
    return x if times == 1 else x.reshape(x.shape[0], -1, times, *x.shape[2:]).sum(2)
