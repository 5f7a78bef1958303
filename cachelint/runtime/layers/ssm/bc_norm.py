"""Root mean square normalisation of the state-space matrices B and C."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, Parameter
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.normalization.rms_norm import rms_norm, rms_norm_backward


class BCNorm(Node):
    """``y = gain * x / sqrt(mean(x^2) + eps)`` over the last axis; gain ``[width]``, x ``[..., width]``.

    The root mean square is a row statistic of the live input, so backward derives it again and nothing is kept.
    """

    def __init__(self, width: int, *, eps: float = 1e-6, init: Init | None = None) -> None:
        init = init or Init()
        self.gain = Parameter(init.full((width,), 1.0), "gain")
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Return x, normalised and scaled."""
        return rms_norm(x, self.gain.value, self.eps)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x; add that of the gain."""
        dx, dgain = rms_norm_backward(grad, x, self.gain.value, self.eps)
        self.gain.accumulate(dgain)
        return (dx,)


def reference(node: BCNorm, x: Tensor) -> Tensor:
    """Return the same normalisation in plain torch operators."""
    return torch.nn.functional.rms_norm(x, x.shape[-1:], node.gain.value, node.eps)


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[BCNorm, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = BCNorm(4, init=init)
    init.jitter(node)
    return node, (init.normal(2, 3, 4),)
