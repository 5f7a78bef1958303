"""Which keys a query may attend to."""

from __future__ import annotations

import torch
from torch import Tensor


def band(queries: int, keys: int, *, causal: bool, window: int | None, device: torch.device) -> Tensor | None:
    """True where query i may attend to key j, ``[queries, keys]``; None if it may everywhere.

    The last query stands at the last key. ``causal`` excludes later keys, ``window`` keys more than that far away.
    """
    if not causal and window is None:
        return None
    position = torch.arange(queries, device=device).unsqueeze(-1) + (keys - queries)
    distance = position - torch.arange(keys, device=device)
    allowed = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    return allowed if window is None else allowed & (distance.abs() <= window)


def additive(mask: Tensor | None, allowed: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """What to add to the scores: minus infinity where not allowed. ``mask`` is boolean (True: allowed) or additive."""
    if mask is not None and mask.dtype == torch.bool:
        allowed = mask if allowed is None else mask & allowed
        mask = None
    if allowed is None:
        return None if mask is None else mask.to(dtype)
    bias = allowed.new_zeros((), dtype=dtype) if mask is None else mask.to(dtype)
    return torch.where(allowed, bias, float("-inf"))
