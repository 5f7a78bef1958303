"""Root mean square normalization."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cachelint.runtime import Node, Parameter
from cachelint.runtime.layers import kernels
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.numerics import sum_leading, wide


class RMSNorm(Node):
    """``x * r * gain`` with ``r = 1 / sqrt(mean(x^2) + eps)`` over the last axis, N wide.

    ``fused`` takes one kernel for the forward (Triton's, where there is one, else torch's own), else the formula is
    written out. Both leave nothing behind: backward derives r from the live input. Source: Zhang and Sennrich, "Root
    Mean Square Layer Normalization", arXiv:1910.07467.
    """

    def __init__(self, size: int, eps: float = 1e-6, *, fused: bool = True, init: Init | None = None) -> None:
        init = init or Init()
        self.eps = eps
        self.fused = fused
        self.gain = Parameter(init.full((size,), 1.0), "gain")

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized x, ``[..., N]``."""
        if self.fused:
            return fused_rms_norm(x, self.gain.value, self.eps)
        return rms_norm(x, self.gain.value, self.eps)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x."""
        dx, dgain = rms_norm_backward(grad, x, self.gain.value, self.eps)
        self.gain.accumulate(dgain)
        return (dx,)


def inverse_rms(x: Tensor, eps: float) -> Tensor:
    """``1 / sqrt(mean(x^2) + eps)`` of each row, ``[..., 1]``."""
    return torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def fused_rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """The normalized x, by one kernel."""
    if kernels.enabled(x, gain, row=x.shape[-1]):
        from cachelint.runtime.layers.kernels import rms_norm as fused

        return fused.rms_norm(x, gain, eps)
    return F.rms_norm(x, gain.shape, gain, eps)


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """The normalized x; computed in float32 at least, in the dtype of x."""
    x_wide = wide(x)
    return (x_wide * inverse_rms(x_wide, eps) * gain).to(x.dtype)


def rms_norm_backward(grad: Tensor, x: Tensor, gain: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The gradients of x and gain; computed in float32 at least.

    With ``n = x * r`` and ``d = grad * gain``: ``dx = r * (d - n * mean(d * n))``.
    """
    if kernels.enabled(x, grad, gain, row=x.shape[-1]):
        from cachelint.runtime.layers.kernels import rms_norm as fused

        return fused.rms_norm_backward(grad, x, gain, eps)
    g, x_wide = wide(grad), wide(x)
    r = inverse_rms(x_wide, eps)
    n = x_wide * r
    d = g * gain
    dx = r * (d - n * (d * n).mean(-1, keepdim=True))
    return dx.to(x.dtype), sum_leading(g * n)


def reference(node: RMSNorm, x: Tensor) -> Tensor:
    """Return the same formula in plain torch operators."""
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + node.eps) * node.gain.value


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[RMSNorm, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = RMSNorm(4, init=init)
    init.jitter(node)
    return node, (init.normal(2, 3, 4),)


def example_plain(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[RMSNorm, tuple[Tensor, ...]]:
    """Return a node that writes the formula out, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = RMSNorm(5, 1e-3, fused=False, init=init)
    init.jitter(node)
    return node, (init.normal(3, 5),)
