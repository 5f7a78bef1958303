"""Linear forecasting of trend and remainder."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cachelint.runtime import Node
from cachelint.runtime.layers.core.affine import Affine
from cachelint.runtime.layers.init import Init


class DLinear(Node):
    """``[B, C, length]`` to ``[B, C, horizon]``: one linear map for the trend, another for the remainder.

    The trend is a moving average over ``kernel`` steps (odd), with the end values repeated at both ends. Backward
    derives it from the live input. Source: Zeng et al., "Are Transformers Effective for Time Series Forecasting?",
    arXiv:2205.13504.
    """

    def __init__(
        self, length: int, horizon: int, *, kernel: int = 25, bias: bool = True, init: Init | None = None
    ) -> None:
        if kernel < 1 or kernel % 2 == 0:
            raise ValueError(f"kernel must be odd and positive, not {kernel}")
        self.kernel = kernel
        self.trend = Affine(length, horizon, bias=bias, init=init)
        self.remainder = Affine(length, horizon, bias=bias, init=init)

    def forward(self, x: Tensor) -> Tensor:
        """Return the forecast."""
        trend = moving_average(x, self.kernel)
        return self.trend.forward(trend) + self.remainder.forward(x - trend)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x."""
        trend = moving_average(x, self.kernel)
        (dtrend,) = self.trend.backward(grad, trend)
        (dremainder,) = self.remainder.backward(grad, x - trend)
        return (dremainder + moving_average_backward(dtrend - dremainder, self.kernel),)


def moving_average(x: Tensor, kernel: int) -> Tensor:
    """The mean over ``kernel`` steps around each step of ``[B, C, T]``, the end values repeated."""
    side = kernel // 2
    return F.avg_pool1d(F.pad(x, (side, side), mode="replicate"), kernel, stride=1)


def moving_average_backward(grad: Tensor, kernel: int) -> Tensor:
    """The gradient of x, given that of ``moving_average(x, kernel)``.

    Each padded step gets the mean of the gradients of the averages that it is in; the end steps collect their copies.
    """
    side = kernel // 2
    padded = F.avg_pool1d(F.pad(grad, (2 * side, 2 * side)), kernel, stride=1)
    steps = grad.shape[-1]
    source = torch.arange(-side, steps + side, device=grad.device).clamp(0, steps - 1)
    return torch.zeros_like(grad).index_add(-1, source, padded)


def reference(node: DLinear, x: Tensor) -> Tensor:
    """Return the same formula in plain torch operators."""

    def dense(layer: Affine, value: Tensor) -> Tensor:
        product = value @ layer.linear.weight.value
        return product if layer.bias is None else product + layer.bias.value

    steps = x.shape[-1]
    reach = torch.arange(node.kernel, device=x.device) - node.kernel // 2
    around = (torch.arange(steps, device=x.device).unsqueeze(-1) + reach).clamp(0, steps - 1)
    trend = x[..., around].mean(-1)
    return dense(node.trend, trend) + dense(node.remainder, x - trend)


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[DLinear, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = DLinear(6, 2, kernel=3, init=init)
    init.jitter(node)
    return node, (init.normal(2, 3, 6),)


def example_short(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[DLinear, tuple[Tensor, ...]]:
    """Return a node whose kernel is wider than the series, without biases, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    return DLinear(4, 3, kernel=9, bias=False, init=init), (init.normal(2, 3, 4),)
