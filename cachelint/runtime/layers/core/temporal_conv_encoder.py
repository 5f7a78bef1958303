"""Encoder of time series by two convolutions."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.layers.core.conv1d import Conv1D
from cachelint.runtime.layers.core.linear import Linear
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept


class TemporalConvEncoder(SaverAware, Node):
    """``mean_t(relu(conv2(relu(conv1(x))))) @ weight``: ``[B, In, T]`` to ``[B, Out]``; T stays (an odd kernel).

    Saves both rectified maps, ``[B, Hidden, T]``, whose signs are the derivative of relu, and the mean, ``[B,
    Hidden]``.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_features: int,
        *,
        kernel_size: int = 3,
        bias: bool = True,
        init: Init | None = None,
    ) -> None:
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, not {kernel_size}")
        padding = kernel_size // 2
        self.conv1 = Conv1D(in_channels, hidden_channels, kernel_size, padding=padding, bias=bias, init=init)
        self.conv2 = Conv1D(hidden_channels, hidden_channels, kernel_size, padding=padding, bias=bias, init=init)
        self.projection = Linear(hidden_channels, out_features, init=init)
        self.last_conv1_out: Tensor | None = None
        self.last_conv2_out: Tensor | None = None
        self.last_pooled: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the encoding."""
        conv1_out = torch.relu(self.conv1(x))
        conv2_out = torch.relu(self.conv2(conv1_out))
        pooled = conv2_out.mean(-1)
        self.last_conv1_out = conv1_out if self.training else None
        self.last_conv2_out = conv2_out if self.training else None
        self.last_pooled = pooled if self.training else None
        self.save_for_backward(self.last_conv1_out, self.last_conv2_out, self.last_pooled)
        return self.projection.forward(pooled)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x."""
        conv1_out, conv2_out = kept(self.last_conv1_out, self), kept(self.last_conv2_out, self)
        (dpooled,) = self.projection.backward(grad, kept(self.last_pooled, self))
        spread = (dpooled / x.shape[-1]).unsqueeze(-1)
        (dconv1,) = self.conv2.backward(torch.where(conv2_out > 0, spread, 0), conv1_out)
        return self.conv1.backward(torch.where(conv1_out > 0, dconv1, 0), x)


def reference(node: TemporalConvEncoder, x: Tensor) -> Tensor:
    """Return the same formula in plain torch operators."""
    for conv in (node.conv1, node.conv2):
        bias = None if conv.bias is None else conv.bias.value
        x = torch.nn.functional.conv1d(x, conv.weight.value, bias, padding="same").relu()
    return x.sum(-1) / x.shape[-1] @ node.projection.weight.value


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[TemporalConvEncoder, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = TemporalConvEncoder(2, 3, 4, init=init)
    _avoid_kinks(node, init)
    return node, (init.normal(2, 2, 5),)


def example_wide(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[TemporalConvEncoder, tuple[Tensor, ...]]:
    """Return a node with a wider kernel and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = TemporalConvEncoder(3, 4, 2, kernel_size=5, init=init)
    _avoid_kinks(node, init)
    return node, (init.normal(3, 3, 7),)


def _avoid_kinks(node: TemporalConvEncoder, init: Init) -> None:
    convs = (node.conv1, node.conv2)
    init.avoid_kinks([conv.weight for conv in convs], [conv.bias for conv in convs if conv.bias is not None])
