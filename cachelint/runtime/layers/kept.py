"""Reading back what a forward in training mode has kept."""

from __future__ import annotations

from torch import Tensor


def kept(value: Tensor | None, layer: object) -> Tensor:
    """``value``, which the forward of ``layer`` has kept.

    Raises:
        RuntimeError: nothing was kept, because forward did not run, or ran in eval mode.
    """
    if value is None:
        raise RuntimeError(f"{type(layer).__name__}.backward needs a forward in training mode before it")
    return value
