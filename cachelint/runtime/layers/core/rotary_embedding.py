"""Rotary embedding that fits itself to its input."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.embeddings.rotary_positional_embedding import RotaryPositionalEmbedding
from cachelint.runtime.layers.embeddings.rotary_positional_embedding import reference as rotated
from cachelint.runtime.layers.init import Init


class RotaryEmbedding(Node):
    """Rotates the leading ``fraction`` of the features of ``[..., S, D]``; the embedding is built when D is known.

    ``inner`` is a handle on the host; its tables are derived from the positions on each call. See
    ``RotaryPositionalEmbedding`` for the formula and the options.
    """

    def __init__(
        self, fraction: float = 1.0, *, base: float = 10000.0, offset: int = 0, interleaved: bool = False
    ) -> None:
        self.fraction = fraction
        self.base = base
        self.offset = offset
        self.interleaved = interleaved
        self.inner: RotaryPositionalEmbedding | None = None

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Return x, rotated; positions are int64 ``[S]`` or ``[B, S]``, by default ``offset, offset + 1, ...``."""
        return self._fit(x.shape[-1]).forward(x, positions)

    def backward(self, grad: Tensor, x: Tensor, positions: Tensor | None = None) -> tuple[Tensor] | tuple[Tensor, None]:
        """Return the gradient of x, and None for positions."""
        return self._fit(x.shape[-1]).backward(grad, x, positions)

    def _fit(self, features: int) -> RotaryPositionalEmbedding:
        rotary = 2 * int(features * self.fraction / 2)
        if self.inner is None or self.inner.rotary != rotary:
            self.inner = RotaryPositionalEmbedding(
                rotary, base=self.base, offset=self.offset, interleaved=self.interleaved
            )
        return self.inner


def reference(node: RotaryEmbedding, x: Tensor, positions: Tensor | None = None) -> Tensor:
    """Return the same rotation as a product of complex numbers."""
    return rotated(node._fit(x.shape[-1]), x, positions)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[RotaryEmbedding, tuple[Tensor]]:
    """Return a node that starts at position two, and an input for it."""
    return RotaryEmbedding(0.5, offset=2), (Init.seeded(seed, device, dtype).normal(2, 3, 8),)


def example_interleaved(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[RotaryEmbedding, tuple[Tensor, ...]]:
    """Return a node that turns neighbouring features, an input and positions."""
    init = Init.seeded(seed, device, dtype)
    positions = torch.tensor([[0, 1, 2], [4, 0, 1]], device=device)
    return RotaryEmbedding(interleaved=True), (init.normal(2, 2, 3, 4), positions)
