"""Feature-wise linear modulation."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.layers.core.linear import Linear
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept


class FiLM(SaverAware, Node):
    """``feature * scale(context) + shift(context)``, both linear: ``[..., F]`` and ``[..., C]`` to ``[..., F]``.

    The scale is saved; the feature is a live input, and nobody needs the shift. Source: Perez et al., "FiLM: Visual
    Reasoning with a General Conditioning Layer", arXiv:1709.07871.
    """

    def __init__(self, context_features: int, features: int, *, init: Init | None = None) -> None:
        self.scale_generator = Linear(context_features, features, init=init)
        self.bias_generator = Linear(context_features, features, init=init)
        self.last_scale: Tensor | None = None

    def forward(self, feature: Tensor, context: Tensor) -> Tensor:
        """Return the modulated feature."""
        scale = self.scale_generator(context)
        self.last_scale = scale if self.training else None
        self.save_for_backward(self.last_scale)
        y: Tensor = feature * scale + self.bias_generator(context)
        return y

    def backward(self, grad: Tensor, feature: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of feature and context."""
        (from_scale,) = self.scale_generator.backward(grad * feature, context)
        (from_bias,) = self.bias_generator.backward(grad, context)
        return grad * kept(self.last_scale, self), from_scale + from_bias


def reference(node: FiLM, feature: Tensor, context: Tensor) -> Tensor:
    """Return the same formula in plain torch operators."""
    return torch.addcmul(
        context @ node.bias_generator.weight.value, feature, context @ node.scale_generator.weight.value
    )


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[FiLM, tuple[Tensor, Tensor]]:
    """Return a node and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    return FiLM(2, 3, init=init), (init.normal(2, 3), init.normal(2, 2))
