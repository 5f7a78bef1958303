"""Layer normalization."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cachelint.runtime import Node, Parameter
from cachelint.runtime.layers import kernels
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.numerics import sum_leading, wide


class LayerNormalization(Node):
    """``(x - mean) / sqrt(variance + eps) * gamma + beta`` over the last axis, N wide.

    The statistics are cheap, so backward derives them from the live input and nothing is saved. ``beta`` is None
    without ``bias``. Source: Ba, Kiros and Hinton, "Layer Normalization", arXiv:1607.06450.
    """

    def __init__(self, size: int, eps: float = 1e-5, *, bias: bool = True, init: Init | None = None) -> None:
        init = init or Init()
        self.eps = eps
        self.gamma = Parameter(init.full((size,), 1.0), "gamma")
        self.beta = Parameter(init.full((size,), 0.0), "beta") if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized x, ``[..., N]``."""
        return layer_norm(x, self.gamma.value, self.beta.value if self.beta else None, self.eps)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x."""
        dx, dgamma, dbeta = layer_norm_backward(grad, x, self.gamma.value, self.eps)
        self.gamma.accumulate(dgamma)
        if self.beta is not None:
            self.beta.accumulate(dbeta)
        return (dx,)


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor | None, eps: float) -> Tensor:
    """The normalized x."""
    if kernels.enabled(x, gamma, beta, row=x.shape[-1]):
        from cachelint.runtime.layers.kernels import layer_norm as fused

        return fused.layer_norm(x, gamma, beta, eps)
    return F.layer_norm(x, gamma.shape, gamma, beta, eps)


def layer_norm_backward(grad: Tensor, x: Tensor, gamma: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, gamma and beta; computed in float32 at least.

    With ``n = (x - mean) * r``, ``r = 1 / sqrt(variance + eps)`` and ``d = grad * gamma``:
    ``dx = r * (d - mean(d) - n * mean(d * n))``.
    """
    if kernels.enabled(x, grad, gamma, row=x.shape[-1]):
        from cachelint.runtime.layers.kernels import layer_norm as fused

        return fused.layer_norm_backward(grad, x, gamma, eps)
    g, x_wide, gain = wide(grad), wide(x), wide(gamma)
    variance, mean = torch.var_mean(x_wide, -1, correction=0, keepdim=True)
    r = torch.rsqrt(variance + eps)
    n = (x_wide - mean) * r
    product = g * n
    mean_d, mean_dn = (((t @ gain) / gain.numel()).unsqueeze(-1) for t in (g, product))
    dx = r * torch.addcmul(g * gain - mean_d, n, mean_dn, value=-1)
    return dx.to(x.dtype), sum_leading(product), sum_leading(g)


def reference(node: LayerNormalization, x: Tensor) -> Tensor:
    """Return the same formula in plain torch operators."""
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    y = centred / torch.sqrt(variance + node.eps) * node.gamma.value
    return y if node.beta is None else y + node.beta.value


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[LayerNormalization, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = LayerNormalization(4, init=init)
    init.jitter(node)
    return node, (init.normal(2, 3, 4),)


def example_without_bias(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[LayerNormalization, tuple[Tensor, ...]]:
    """Return a node without beta and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = LayerNormalization(5, 1e-3, bias=False, init=init)
    init.jitter(node)
    return node, (init.normal(3, 5),)
