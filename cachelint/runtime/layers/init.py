"""Where new tensors live and how they are drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cachelint.runtime import Node, Parameter


@dataclass(frozen=True)
class Init:
    """Device, dtype and random stream of new tensors; composites hand it on to their children.

    Values are drawn in float64 on the CPU and then rounded and moved, so one seed gives the same numbers on every
    device and, up to rounding, in every dtype. Without a generator torch's global CPU stream is used.
    """

    device: torch.device | str = "cpu"
    dtype: torch.dtype | None = None
    generator: torch.Generator | None = None

    @classmethod
    def seeded(cls, seed: int, device: torch.device | str = "cpu", dtype: torch.dtype | None = None) -> Init:
        """A stream of its own, started from ``seed``."""
        return cls(device, dtype, torch.Generator().manual_seed(seed))

    def uniform(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Tensor:
        """Values between ``low`` and ``high``."""
        drawn = torch.rand(shape, generator=self.generator, dtype=torch.float64)
        return self._place(drawn * (high - low) + low)

    def normal(self, *shape: int, std: float = 1.0) -> Tensor:
        """Normally distributed values with mean zero."""
        return self._place(torch.randn(shape, generator=self.generator, dtype=torch.float64) * std)

    def fan_in(self, *shape: int) -> Tensor:
        """A weight ``[in, out]``, uniform with the bound ``1 / sqrt(in)``."""
        bound = max(shape[0], 1) ** -0.5
        return self.uniform(*shape, low=-bound, high=bound)

    def full(self, shape: Sequence[int], value: float) -> Tensor:
        """The one value everywhere."""
        return self._place(torch.full(tuple(shape), value, dtype=torch.float64))

    def jitter(self, node: Node, std: float = 0.3) -> None:
        """Add noise to every parameter of ``node``: a gain of exactly one hides mistakes."""
        with torch.no_grad():
            for parameter in node.parameters():
                parameter.value.add_(self.normal(*parameter.value.shape, std=std))

    def avoid_kinks(self, weights: Iterable[Parameter], biases: Iterable[Parameter]) -> None:
        """Shrink ``weights`` and set ``biases`` to one and minus one in turn: rounding can't turn a relu on or off."""
        with torch.no_grad():
            for weight in weights:
                weight.value.mul_(0.1)
            for bias in biases:
                bias.value[::2] = 1
                bias.value[1::2] = -1

    def _place(self, drawn: Tensor) -> Tensor:
        return drawn.to(device=self.device, dtype=self.dtype or torch.get_default_dtype())
