"""Linear forecasting around the last value."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.core.affine import Affine
from cachelint.runtime.layers.init import Init


class NLinear(Node):
    """``[B, C, length]`` to ``[B, C, horizon]``: a linear map of the difference to the last value, plus that value.

    Source: Zeng et al., "Are Transformers Effective for Time Series Forecasting?", arXiv:2205.13504.
    """

    def __init__(self, length: int, horizon: int, *, bias: bool = True, init: Init | None = None) -> None:
        self.dense = Affine(length, horizon, bias=bias, init=init)

    def forward(self, x: Tensor) -> Tensor:
        """Return the forecast."""
        last = x[..., -1:]
        return self.dense.forward(x - last) + last

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x."""
        (dx,) = self.dense.backward(grad, x - x[..., -1:])
        dlast = grad.sum(-1, keepdim=True) - dx.sum(-1, keepdim=True)
        return (torch.cat([dx[..., :-1], dx[..., -1:] + dlast], -1),)


def reference(node: NLinear, x: Tensor) -> Tensor:
    """Return the same formula in plain torch operators."""
    last = x.select(-1, -1).unsqueeze(-1)
    product = (x - last) @ node.dense.linear.weight.value
    return last + (product if node.dense.bias is None else product + node.dense.bias.value)


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[NLinear, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = NLinear(5, 2, init=init)
    init.jitter(node)
    return node, (init.normal(2, 3, 5),)


def example_without_bias(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[NLinear, tuple[Tensor, ...]]:
    """Return a node without bias and an input for it."""
    init = Init.seeded(seed, device, dtype)
    return NLinear(4, 3, bias=False, init=init), (init.normal(2, 4),)
