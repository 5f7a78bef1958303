"""Layer normalization without centring, as the ONNX contrib operators name it."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, Parameter
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.normalization.rms_norm import rms_norm, rms_norm_backward


class SimplifiedLayerNormalization(Node):
    """``x / sqrt(mean(x^2) + epsilon) * gain`` over the last axis, N wide: the formula of RMSNorm.

    Backward derives the statistics from the live input and nothing is saved.
    """

    def __init__(self, size: int, epsilon: float = 1e-5, *, init: Init | None = None) -> None:
        self.epsilon = epsilon
        self.gain = Parameter((init or Init()).full((size,), 1.0), "gain")

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized x, ``[..., N]``."""
        return rms_norm(x, self.gain.value, self.epsilon)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x."""
        dx, dgain = rms_norm_backward(grad, x, self.gain.value, self.epsilon)
        self.gain.accumulate(dgain)
        return (dx,)


def reference(node: SimplifiedLayerNormalization, x: Tensor) -> Tensor:
    """Return the same formula in plain torch operators."""
    return x * ((x * x).mean(-1, keepdim=True) + node.epsilon) ** -0.5 * node.gain.value


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[SimplifiedLayerNormalization, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = SimplifiedLayerNormalization(4, init=init)
    init.jitter(node)
    return node, (init.normal(2, 3, 4),)
