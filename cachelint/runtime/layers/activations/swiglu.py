"""Gated linear unit with the swish activation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cachelint.runtime import Node
from cachelint.runtime.layers import kernels
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.numerics import wide


class SwiGLU(Node):
    """``y = silu(gate) * up`` with ``[gate, up]`` the halves of the last axis: ``[..., 2D]`` to ``[..., D]``.

    Sigmoid and silu are elementwise, so backward derives them from the live input and nothing is saved.
    Source: Shazeer, "GLU Variants Improve Transformer", arXiv:2002.05202.

    Raises:
        ValueError: the last axis has an odd size.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the gated half."""
        return swiglu(x)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x, both halves side by side."""
        return (swiglu_backward(grad, x),)


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """The two halves of the last axis, as views."""
    if x.shape[-1] % 2:
        raise ValueError(f"the last axis must have an even size, not {x.shape[-1]}")
    gate, up = x.chunk(2, -1)
    return gate, up


def swiglu(x: Tensor) -> Tensor:
    """``gate * sigmoid(gate) * up``."""
    gate, up = halves(x)
    if kernels.enabled(x):
        from cachelint.runtime.layers.kernels import swiglu as fused

        return fused.swiglu(x)
    return F.silu(gate) * up


def swiglu_backward(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of x, given the gradient of ``swiglu(x)``; computed in float32 at least, in the dtype of x.

    With ``s = sigmoid(gate)``: ``dgate = grad * up * s * (1 + gate * (1 - s))`` and ``dup = grad * gate * s``.
    """
    if kernels.enabled(x, grad):
        from cachelint.runtime.layers.kernels import swiglu as fused

        return fused.swiglu_backward(grad, x)
    gate, up = halves(wide(x))
    s = torch.sigmoid(gate)
    dgate = grad * up * s * (1 + gate * (1 - s))
    dup = grad * gate * s
    return torch.cat([dgate, dup], -1).to(x.dtype)


def reference(node: SwiGLU, x: Tensor) -> Tensor:
    """Return the same function in plain torch operators."""
    gate, up = x.tensor_split(2, -1)
    return gate / (1 + torch.exp(-gate)) * up


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[SwiGLU, tuple[Tensor]]:
    """Return a node and an input for it."""
    return SwiGLU(), (Init.seeded(seed, device, dtype).normal(2, 6),)
