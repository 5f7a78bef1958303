"""Rotary positional embedding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers import kernels
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.numerics import wide


class RotaryPositionalEmbedding(Node):
    """Rotates pairs of the last axis by an angle that grows with the position.

    x: ``[..., S, D]``, such as ``[B, S, D]`` or ``[B, H, S, D]``. The first ``rotary`` features (default: all) are
    rotated, the others pass through. Pair i turns by ``position / scaling * base^(-2i / rotary)``; it is made of
    features i and ``i + rotary / 2``, or of 2i and 2i + 1 if ``interleaved``. Positions are ``offset, offset + 1``,
    ..., or given as a second input: int64 ``[S]`` or ``[B, S]``, see ``document_positions``.

    Angles follow from shapes and positions, so backward derives them again. They are computed in float32, or in float64
    for float64 inputs. Source: Su et al., "RoFormer", arXiv:2104.09864.

    Raises:
        ValueError: ``rotary`` is odd, or exceeds the features of x.
    """

    def __init__(
        self,
        rotary: int | None = None,
        *,
        base: float = 10000.0,
        scaling: float = 1.0,
        offset: int = 0,
        interleaved: bool = False,
    ) -> None:
        if rotary is not None and rotary % 2:
            raise ValueError(f"the number of rotated features must be even, not {rotary}")
        self.rotary = rotary
        self.base = base
        self.scaling = scaling
        self.offset = offset
        self.interleaved = interleaved

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Return x, rotated."""
        cos, sin = self._table(x, positions)
        return self._rotate(x, cos, sin)

    def backward(self, grad: Tensor, x: Tensor, positions: Tensor | None = None) -> tuple[Tensor] | tuple[Tensor, None]:
        """Return the gradient of x: grad, rotated back. Positions have no gradient."""
        cos, sin = self._table(x, positions)
        dx = self._rotate(grad, cos, -sin)
        return (dx,) if positions is None else (dx, None)

    def _table(self, x: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return cosine and sine of the angles, ``[S, rotary / 2]``, or with x's leading axes to broadcast over."""
        rotary = x.shape[-1] if self.rotary is None else self.rotary
        if rotary > x.shape[-1] or rotary % 2:
            raise ValueError(f"can't rotate {rotary} of {x.shape[-1]} features")
        if positions is None:
            positions = torch.arange(self.offset, self.offset + x.shape[-2], device=x.device)
        dtype = torch.promote_types(x.dtype, torch.float32)
        exponent = torch.arange(0, rotary, 2, device=x.device, dtype=dtype) / rotary
        angles = (positions.to(dtype) / self.scaling).unsqueeze(-1) * self.base**-exponent
        if angles.dim() == 3:  # one row of positions a batch entry: every axis between is broadcast
            angles = angles.reshape(angles.shape[0], *[1] * (x.dim() - 3), *angles.shape[1:])
        return angles.cos(), angles.sin()

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = cos.shape[-1]
        if kernels.enabled(x, cos, sin, row=x.shape[-1]):
            from cachelint.runtime.layers.kernels import rotary as fused

            return fused.rotate(x, cos, sin, interleaved=self.interleaved)
        turned, rest = wide(x[..., : 2 * half]), x[..., 2 * half :]
        if self.interleaved:
            first, second = turned[..., 0::2], turned[..., 1::2]
        else:
            first, second = turned[..., :half], turned[..., half:]
        first, second = first * cos - second * sin, second * cos + first * sin
        turned = torch.stack((first, second), -1).flatten(-2) if self.interleaved else torch.cat((first, second), -1)
        return torch.cat((turned.to(x.dtype), rest), -1)


def document_positions(length: int, starts: Sequence[int], device: torch.device | str | None = None) -> Tensor:
    """Positions ``[length]`` of packed documents: they count from zero again at each index in ``starts``."""
    count = torch.arange(length, device=device)
    begin = torch.zeros_like(count)
    for start in sorted(starts):
        begin = torch.where(count >= start, start, begin)
    return count - begin


def reference(node: RotaryPositionalEmbedding, x: Tensor, positions: Tensor | None = None) -> Tensor:
    """Return the same rotation as a product of complex numbers."""
    rotary = node.rotary or x.shape[-1]
    if positions is None:
        positions = node.offset + torch.arange(x.shape[-2], device=x.device)
    turned = x[..., :rotary]
    pairs = (
        torch.unflatten(turned, -1, (-1, 2))
        if node.interleaved
        else torch.unflatten(turned, -1, (2, -1)).transpose(-1, -2)
    )
    frequency = torch.tensor(
        [node.base ** (-2.0 * i / rotary) for i in range(rotary // 2)], device=x.device, dtype=x.dtype
    )
    angles = positions.to(x.dtype).unsqueeze(-1) / node.scaling * frequency
    while positions.dim() == 2 and angles.dim() < x.dim():
        angles = angles.unsqueeze(1)
    product = torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angles), angles)
    real = torch.view_as_real(product)
    real = real.flatten(-2) if node.interleaved else real.transpose(-1, -2).flatten(-2)
    return torch.cat((real, x[..., rotary:]), -1)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[RotaryPositionalEmbedding, tuple[Tensor]]:
    """Return a node that starts at position two, and an input for it."""
    return RotaryPositionalEmbedding(offset=2), (Init.seeded(seed, device, dtype).normal(2, 3, 4),)


def example_partial(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[RotaryPositionalEmbedding, tuple[Tensor, ...]]:
    """Return a node that leaves features alone, and heads for it."""
    node = RotaryPositionalEmbedding(4, base=100.0, scaling=2.0)
    return node, (Init.seeded(seed, device, dtype).normal(2, 3, 5, 7),)


def example_interleaved(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[RotaryPositionalEmbedding, tuple[Tensor, ...]]:
    """Return a node that pairs neighbours, and packed documents for it."""
    x = Init.seeded(seed, device, dtype).normal(2, 6, 4)
    return RotaryPositionalEmbedding(interleaved=True), (x, document_positions(6, [2, 3], device) + seed)


def example_by_batch(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[RotaryPositionalEmbedding, tuple[Tensor, ...]]:
    """Return a node, heads, and positions of their own for each batch entry."""
    x = Init.seeded(seed, device, dtype).normal(2, 3, 5, 4)
    positions = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 0, 1]], device=device) + seed
    return RotaryPositionalEmbedding(2), (x, positions)
