"""Batch normalization with given statistics."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.numerics import wide


class BatchNormalization(Node):
    """``scale * (x - mean) / sqrt(variance + eps) + bias`` per channel; x is ``[B, C, ...]``, the other inputs ``[C]``.

    All five are inputs and all five get a gradient. Backward derives everything from them, so nothing is saved.
    Source: Ioffe and Szegedy, "Batch Normalization", arXiv:1502.03167, with the statistics of inference.
    """

    def __init__(self, eps: float = 1e-5) -> None:
        self.eps = eps

    def forward(self, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Return the normalized x."""
        slope = scale * torch.rsqrt(wide(variance) + self.eps)
        centred = wide(x) - channels(mean, x)
        return (centred * channels(slope, x) + channels(bias, x)).to(x.dtype)

    def backward(
        self, grad: Tensor, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return the gradients of x, scale, bias, mean and variance.

        With ``r = 1 / sqrt(variance + eps)``: ``dx = grad * scale * r``, ``dscale = sum(grad * (x - mean)) * r``,
        ``dmean = -dbias * scale * r`` and ``dvariance = -dscale * scale * r^2 / 2``.
        """
        g = wide(grad)
        r = torch.rsqrt(wide(variance) + self.eps)
        dbias = sum_channels(g)
        dscale = sum_channels(g * (wide(x) - channels(mean, x))) * r
        slope = scale * r
        dx = g * channels(slope, x)
        return (
            dx.to(x.dtype),
            dscale.to(scale.dtype),
            dbias.to(bias.dtype),
            (-dbias * slope).to(mean.dtype),
            (-0.5 * dscale * slope * r).to(variance.dtype),
        )


def channels(value: Tensor, x: Tensor) -> Tensor:
    """``[C]`` in a shape that broadcasts against x, ``[B, C, ...]``."""
    return value.view(-1, *(1,) * (x.dim() - 2))


def sum_channels(x: Tensor) -> Tensor:
    """Sum over every axis but the channels: ``[B, C, ...]`` to ``[C]``."""
    return x.transpose(0, 1).flatten(1).sum(1)


def reference(
    node: BatchNormalization, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> Tensor:
    """Return the same formula in plain torch operators."""
    shape = (1, -1, *(1,) * (x.dim() - 2))
    deviation = torch.sqrt(variance.reshape(shape) + node.eps)
    return scale.reshape(shape) * (x - mean.reshape(shape)) / deviation + bias.reshape(shape)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[BatchNormalization, tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]:
    """Return a node and inputs for it."""
    init = Init.seeded(seed, device, dtype)
    x, scale, bias, mean = init.normal(2, 3, 4), init.normal(3), init.normal(3), init.normal(3)
    return BatchNormalization(), (x, scale, bias, mean, init.uniform(3, low=0.5, high=2.0))


def example_matrix(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[BatchNormalization, tuple[Tensor, ...]]:
    """Return a node and inputs for it, x without axes beside batch and channels."""
    init = Init.seeded(seed, device, dtype)
    x, scale, bias, mean = init.normal(5, 3), init.normal(3), init.normal(3), init.normal(3)
    return BatchNormalization(1e-3), (x, scale, bias, mean, init.uniform(3, low=0.5, high=2.0))
