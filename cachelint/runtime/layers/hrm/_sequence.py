"""A block that takes sequences, run on single vectors too."""

from __future__ import annotations

from torch import Tensor


def as_sequence(x: Tensor) -> Tensor:
    """``[B, M]`` as a sequence of one, ``[B, 1, M]``; any other rank as it is."""
    return x.unsqueeze(1) if x.dim() == 2 else x
