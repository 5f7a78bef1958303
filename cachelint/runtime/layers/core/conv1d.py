"""Convolution over one axis."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cachelint.runtime import Node, Parameter
from cachelint.runtime.layers.init import Init


class Conv1D(Node):
    """Cross-correlation of ``[B, In, T]`` with a weight ``[Out, In, K]``, zero padded on both sides."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        bias: bool = True,
        init: Init | None = None,
    ) -> None:
        init = init or Init()
        bound = (in_channels * kernel_size) ** -0.5
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.weight = Parameter(init.uniform(out_channels, in_channels, kernel_size, low=-bound, high=bound), "weight")
        self.bias = Parameter(init.full((out_channels,), 0.0), "bias") if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution, ``[B, Out, T']``."""
        bias = None if self.bias is None else self.bias.value
        return F.conv1d(x, self.weight.value, bias, self.stride, self.padding, self.dilation)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x."""
        dx, dweight, dbias = conv1d_backward(grad, x, self.weight.value, self.stride, self.padding, self.dilation)
        self.weight.accumulate(dweight)
        if self.bias is not None:
            self.bias.accumulate(dbias)
        return (dx,)


def conv1d_backward(
    grad: Tensor, x: Tensor, weight: Tensor, stride: int, padding: int, dilation: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight and bias."""
    dx, dweight, dbias = torch.ops.aten.convolution_backward(
        grad, x, weight, weight.shape[:1], [stride], [padding], [dilation], False, [0], 1, [True, True, True]
    )
    return dx, dweight, dbias


def reference(node: Conv1D, x: Tensor) -> Tensor:
    """Return the same formula as a product with the unfolded input."""
    out_channels, in_channels, kernel_size = node.weight.value.shape
    columns = F.unfold(
        x.unsqueeze(-2),
        (1, kernel_size),
        dilation=(1, node.dilation),
        padding=(0, node.padding),
        stride=(1, node.stride),
    )
    y = node.weight.value.reshape(out_channels, in_channels * kernel_size) @ columns
    return y if node.bias is None else y + node.bias.value.unsqueeze(-1)


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Conv1D, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = Conv1D(2, 3, 3, padding=1, init=init)
    init.jitter(node)
    return node, (init.normal(2, 2, 5),)


def example_strided(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[Conv1D, tuple[Tensor, ...]]:
    """Return a node with stride, dilation and an even kernel, without bias, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    return Conv1D(3, 2, 4, stride=2, padding=3, dilation=2, bias=False, init=init), (init.normal(2, 3, 11),)
