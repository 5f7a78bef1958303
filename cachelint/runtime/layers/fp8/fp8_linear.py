"""Linear map computed in eight-bit floating point."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from cachelint.runtime import Node, Parameter, Persistent
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.numerics import rows, sum_leading, wide

Format = Literal["e4m3", "e5m2"]
Scaling = Literal["tensor", "row"]

_DTYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


class FP8Linear(Node):
    """``y = q(x) @ q(weight)^T + bias``: ``[..., In]`` to ``[..., Out]``, weight ``[Out, In]``; q rounds to eight bits.

    One scale a tensor, or one a row, maps the largest magnitude to the largest number of ``format``. The rounded
    weight is kept over the steps until the weight is written. With ``enabled`` off the map is the plain one.

    Backward is straight through: that of ``x @ weight^T`` for the live x and the weight itself, as if q were not there.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = False,
        format: Format = "e4m3",
        scaling: Scaling = "tensor",
        enabled: bool = True,
        init: Init | None = None,
    ) -> None:
        init = init or Init()
        self.weight = Parameter(init.fan_in(in_features, out_features).mT.contiguous(), "weight")
        self.bias = Parameter(init.full((out_features,), 0.0), "bias") if bias else None
        self.format = format
        self.scaling = scaling
        self.enabled = enabled
        self.rounded_weight = Persistent(self.weight, name="rounded_weight")

    def forward(self, x: Tensor) -> Tensor:
        """Return the map of x."""
        bias = None if self.bias is None else self.bias.value
        if not self.enabled:
            return F.linear(x, self.weight.value, bias)
        weight = self.rounded_weight.fetch(lambda: round_trip(self.weight.value, self.format, self.scaling).detach())
        return F.linear(round_trip(x, self.format, self.scaling), weight, bias)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x; add those of weight and bias."""
        self.weight.accumulate(rows(grad).mT @ rows(x))
        if self.bias is not None:
            self.bias.accumulate(sum_leading(grad))
        return (grad @ self.weight.value,)


def round_trip(x: Tensor, format: Format = "e4m3", scaling: Scaling = "tensor") -> Tensor:
    """``x`` rounded to eight bits and back, in its own dtype."""
    limit = torch.finfo(_DTYPES[format]).max
    magnitude = wide(x).abs()
    largest = magnitude.amax() if scaling == "tensor" else magnitude.amax(-1, keepdim=True)
    scale = torch.where(largest > 0, largest / limit, 1.0)
    return ((wide(x) / scale).clamp(-limit, limit).to(_DTYPES[format]).to(scale.dtype) * scale).to(x.dtype)


def reference(node: FP8Linear, x: Tensor) -> Tensor:
    """Return the same values with the derivative of the plain map."""
    bias = None if node.bias is None else node.bias.value
    plain = F.linear(x, node.weight.value, bias)
    if not node.enabled:
        return plain
    x8, weight8 = (round_trip(t.detach(), node.format, node.scaling) for t in (x, node.weight.value))
    return plain + (F.linear(x8, weight8, bias) - plain).detach()


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[FP8Linear, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    return FP8Linear(3, 4, bias=True, init=init), (init.normal(2, 5, 3),)


def example_by_row(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[FP8Linear, tuple[Tensor, ...]]:
    """Return a node with one scale a row, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    return FP8Linear(5, 3, format="e5m2", scaling="row", init=init), (init.normal(7, 5),)


def example_disabled(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[FP8Linear, tuple[Tensor, ...]]:
    """Return a node that computes in full precision, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    return FP8Linear(5, 3, bias=True, enabled=False, init=init), (init.normal(7, 5),)
