"""Forecasting by a doubly residual stack."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from cachelint.runtime import Node, Parameter
from cachelint.runtime.layers.init import Init


@dataclass
class Block:
    """The parameters of one block: its hidden layers, and the map to backcast and forecast side by side."""

    weights: tuple[Parameter, ...]
    biases: tuple[Parameter, ...]
    theta: Parameter


class NBeats(Node):
    """``[B, length]`` to ``[B, horizon]``: each block explains a part of what is left and adds to the forecast.

    A block is ``layers`` hidden layers with relu, ``width`` wide, and a linear map to a backcast and a forecast (the
    generic basis). Backward runs the blocks again on the live input, as activation checkpointing does, and hands what
    it finds to pure functions, so nothing is kept between the passes. Source: Oreshkin et al., "N-BEATS",
    arXiv:1905.10437.
    """

    def __init__(
        self,
        length: int,
        horizon: int,
        *,
        blocks: int = 3,
        layers: int = 4,
        width: int = 256,
        init: Init | None = None,
    ) -> None:
        init = init or Init()
        self.length = length
        self.horizon = horizon
        sizes = [length] + [width] * layers
        self.blocks = [
            Block(
                tuple(Parameter(init.fan_in(*pair), "weight") for pair in pairwise(sizes)),
                tuple(Parameter(init.full((width,), 0.0), "bias") for _ in range(layers)),
                Parameter(init.fan_in(width, length + horizon), "theta"),
            )
            for _ in range(blocks)
        ]

    def forward(self, x: Tensor) -> Tensor:
        """Return the forecast."""
        forecast = x.new_zeros(*x.shape[:-1], self.horizon)
        for block in self.blocks:
            backcast, part = self._project(block, hidden_layers(x, block)[-1])
            x = x - backcast
            forecast = forecast + part
        return forecast

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x."""
        passes = []
        for block in self.blocks:
            activations = hidden_layers(x, block)
            passes.append((block, activations))
            x = x - self._project(block, activations[-1])[0]
        dx = torch.zeros_like(x)
        for block, activations in reversed(passes):
            dx = dx + block_backward(torch.cat([-dx, grad], -1), block, activations)
        return (dx,)

    def _project(self, block: Block, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Backcast and forecast."""
        theta = hidden @ block.theta.value
        return theta[..., : self.length], theta[..., self.length :]


def hidden_layers(x: Tensor, block: Block) -> tuple[Tensor, ...]:
    """x and the output of each hidden layer."""
    activations = [x]
    for weight, bias in zip(block.weights, block.biases, strict=True):
        activations.append(torch.relu(activations[-1] @ weight.value + bias.value))
    return tuple(activations)


def block_backward(grad: Tensor, block: Block, activations: tuple[Tensor, ...]) -> Tensor:
    """The gradient of the block's input, given that of backcast and forecast side by side; parameters accumulate."""
    block.theta.accumulate(activations[-1].mT @ grad)
    grad = grad @ block.theta.value.mT
    layers = zip(block.weights, block.biases, pairwise(activations), strict=True)
    for weight, bias, (before, after) in reversed(list(layers)):
        grad = torch.where(after > 0, grad, 0)
        weight.accumulate(before.mT @ grad)
        bias.accumulate(grad.sum(0))
        grad = grad @ weight.value.mT
    return grad


def reference(node: NBeats, x: Tensor) -> Tensor:
    """Return the same formula in plain torch operators."""
    forecasts = []
    for block in node.blocks:
        hidden = x
        for weight, bias in zip(block.weights, block.biases, strict=True):
            hidden = torch.addmm(bias.value, hidden, weight.value).relu()
        theta = hidden @ block.theta.value
        x = x - theta[:, : node.length]
        forecasts.append(theta[:, node.length :])
    return torch.stack(forecasts).sum(0)


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[NBeats, tuple[Tensor]]:
    """Return a node with two small blocks and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = NBeats(4, 2, blocks=2, layers=2, width=5, init=init)
    for block in node.blocks:
        init.avoid_kinks(block.weights, block.biases)
    return node, (init.normal(3, 4),)


def example_one_block(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[NBeats, tuple[Tensor, ...]]:
    """Return a node with a single deep block and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = NBeats(5, 3, blocks=1, layers=3, width=6, init=init)
    init.avoid_kinks(node.blocks[0].weights, node.blocks[0].biases)
    return node, (init.normal(7, 5),)
