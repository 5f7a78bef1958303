"""Product with a weight that is stored in a few bits an element."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from cachelint.runtime import Node, Persistent
from cachelint.runtime.layers.init import Init


class MatMulNBits(Node):
    """``y = x @ w`` with ``w[i, j] = scale * (code[i, j] - zero_point)``: x ``[..., In]``, w ``[In, Out]``, frozen.

    ``codes``: uint8 ``[In, ceil(Out * bits / 8)]``, ``bits`` (2, 4 or 8) a code, the first one lowest. ``scale`` and
    ``zero_point``: 0-d, or ``[In, Groups]`` with one value for each of equal runs of columns (the last may be shorter).
    Without a zero point it is the middle of the codes, ``2^(bits - 1)``.

    The dequantised weight serves every step until ``load`` or ``invalidate``; with ``cache`` off each pass makes its
    own. A write into ``codes``, ``scale`` or ``zero_point`` must be followed by ``invalidate``.

    Raises:
        ValueError: bits or shapes don't fit.
    """

    def __init__(
        self,
        codes: Tensor,
        scale: Tensor,
        zero_point: Tensor | None = None,
        *,
        out_features: int,
        bits: int = 4,
        cache: bool = True,
    ) -> None:
        if bits not in (2, 4, 8):
            raise ValueError(f"bits must be 2, 4 or 8, not {bits}")
        self.out_features = out_features
        self.bits = bits
        self.cache = cache
        self.dequantised = Persistent(name="dequantised")
        self.load(codes, scale, zero_point)

    def load(self, codes: Tensor, scale: Tensor, zero_point: Tensor | None = None) -> None:
        """Replace the quantised weight."""
        width = -(-self.out_features * self.bits // 8)
        if codes.dtype != torch.uint8 or codes.dim() != 2 or codes.shape[1] != width:
            raise ValueError(f"codes must be uint8 [In, {width}], not {codes.dtype} {list(codes.shape)}")
        self.codes = codes
        self.scale = scale
        self.zero_point = zero_point
        self.invalidate()

    def invalidate(self) -> None:
        """Forget the dequantised weight: the quantised one has changed."""
        self.dequantised.invalidate()

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x @ w``."""
        return x @ self.weight()

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return ``grad @ w^T``. The weight is frozen."""
        return (grad @ self.weight().mT,)

    def weight(self) -> Tensor:
        """The dequantised weight, ``[In, Out]``, in the dtype of the scale."""
        return self.dequantised.fetch(self._dequantise) if self.cache else self._dequantise()

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Move the quantised weight; cast scale and zero point, not what was dequantised with others."""
        self.invalidate()
        return super().to(device, dtype)

    def _dequantise(self) -> Tensor:
        scale = self._by_column(self.scale)
        codes: Tensor = unpack(self.codes, self.bits)[:, : self.out_features].to(scale.dtype)
        if self.zero_point is None:
            return scale * (codes - (1 << (self.bits - 1)))
        return scale * (codes - self._by_column(self.zero_point))

    def _by_column(self, values: Tensor) -> Tensor:
        """Spread one value a group over the group's columns."""
        if values.dim() == 0:
            return values
        size = -(-self.out_features // values.shape[1])
        return values.repeat_interleave(size, 1)[:, : self.out_features]


def unpack(codes: Tensor, bits: int) -> Tensor:
    """The codes in each byte, the lowest first: uint8 ``[R, C]`` to ``[R, C * 8 / bits]``."""
    shifts = torch.arange(0, 8, bits, device=codes.device, dtype=torch.uint8)
    return ((codes.unsqueeze(-1) >> shifts) & ((1 << bits) - 1)).flatten(1)


def quantise(
    weight: Tensor, *, bits: int = 4, groups: int = 1, symmetric: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Codes, scale and zero point (None if ``symmetric``) for ``MatMulNBits`` that come closest to ``weight``.

    Weight ``[In, Out]``; each row is scaled in ``groups`` equal runs of columns.
    """
    rows, columns = weight.shape
    size = -(-columns // groups)
    padding = size * groups - columns
    runs = torch.cat((weight, weight[:, -1:].expand(-1, padding)), 1).reshape(rows, groups, size)
    top = (1 << bits) - 1
    if symmetric:
        scale = runs.abs().amax(-1) / (2 ** (bits - 1) - 0.5)
        zero_point, middle = None, torch.full_like(scale, 2 ** (bits - 1))
    else:
        low, high = runs.amin(-1).clamp_max(0), runs.amax(-1).clamp_min(0)
        scale = (high - low) / top
        zero_point = middle = (-low / torch.where(scale > 0, scale, 1)).round()
    scale = torch.where(scale > 0, scale, 1)
    codes = (runs / scale.unsqueeze(-1) + middle.unsqueeze(-1)).round().clamp(0, top)
    per_byte = 8 // bits
    flat = codes.flatten(1)[:, :columns].to(torch.uint8)
    flat = torch.cat((flat, flat.new_zeros(rows, -columns % per_byte)), 1).reshape(rows, -1, per_byte)
    shifts = torch.arange(0, 8, bits, device=weight.device, dtype=torch.uint8)
    return (flat << shifts).sum(-1, dtype=torch.uint8), scale, zero_point


def reference(node: MatMulNBits, x: Tensor) -> Tensor:
    """Return the same product, each code taken out of its byte on its own."""
    per_byte = 8 // node.bits
    columns = []
    for j in range(node.out_features):
        code = node.codes[:, j // per_byte].long() // 2 ** (node.bits * (j % per_byte)) % 2**node.bits
        group = 0 if node.scale.dim() == 0 else j // -(-node.out_features // node.scale.shape[1])
        scale = node.scale if node.scale.dim() == 0 else node.scale[:, group]
        zero = 2 ** (node.bits - 1) if node.zero_point is None else node.zero_point
        if isinstance(zero, Tensor) and zero.dim():
            zero = zero[:, group]
        columns.append(scale * (code - zero))
    return torch.einsum("...i,io->...o", x, torch.stack(columns, -1))


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MatMulNBits, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    codes, scale, zero_point = quantise(init.normal(2, 4), symmetric=False)
    return MatMulNBits(codes, scale, zero_point, out_features=4), (init.normal(3, 2),)


def example_two_bits(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MatMulNBits, tuple[Tensor, ...]]:
    """Return a node of two bits with three scales a row, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    codes, scale, zero_point = quantise(init.normal(3, 7), bits=2, groups=3)
    return MatMulNBits(codes, scale, zero_point, out_features=7, bits=2), (init.normal(2, 5, 3),)


def example_eight_bits(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MatMulNBits, tuple[Tensor, ...]]:
    """Return a node of eight bits that keeps no weight, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    codes, scale, zero_point = quantise(init.normal(3, 5), bits=8, groups=2, symmetric=False)
    return MatMulNBits(codes, scale, zero_point, out_features=5, bits=8, cache=False), (init.normal(3),)
