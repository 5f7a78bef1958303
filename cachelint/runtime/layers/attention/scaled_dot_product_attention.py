"""Scaled dot-product attention."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.layers.activations.softmax import softmax_backward
from cachelint.runtime.layers.attention import fused as kernels
from cachelint.runtime.layers.attention.masks import additive, band
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept


class ScaledDotProductAttention(SaverAware, Node):
    """``softmax(q @ k^T * scale + mask) @ v`` for q ``[..., Sq, D]``, k ``[..., Sk, D]`` and v ``[..., Sk, Dv]``.

    A mask is boolean (True: may attend) or additive, and broadcasts against ``[..., Sq, Sk]``. ``causal`` and
    ``window`` restrict further, with the last query at the last key. A query that may attend to nothing gives zeros.

    Backward takes q, k and v as live inputs. With torch's fused kernels it needs forward's output and the log-sum-exp
    of the scores besides, without them the attention weights; these are saved. ``fused`` is chosen by device and
    shape if None. Source: Vaswani et al., "Attention Is All You Need", arXiv:1706.03762.

    Raises:
        ValueError: ``fused`` is asked for where there is no kernel.
    """

    def __init__(
        self,
        *,
        causal: bool = False,
        window: int | None = None,
        scale: float | None = None,
        fused: bool | None = None,
    ) -> None:
        self.causal = causal
        self.window = window
        self.scale = scale
        self.fused = fused
        self.output: Tensor | None = None
        self.logsumexp: Tensor | None = None
        self.attention_weights: Tensor | None = None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the attention output, ``[..., Sq, Dv]``."""
        self.output, self.logsumexp, self.attention_weights = None, None, None
        if self._takes_kernel(q, k, v):
            bias, causal = self._kernel_mask(q, k, mask)
            output, logsumexp = kernels.attend(q, k, v, bias, causal, self._scale(q))
            if self.training:
                self.output, self.logsumexp = output, logsumexp
                self.save_for_backward(output, logsumexp)
            return output
        weights = attention_weights(q, k, self._bias(q, k, mask), self._scale(q))
        if self.training:
            self.attention_weights = weights
            self.save_for_backward(weights)
        return weights @ v

    def backward(
        self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor] | tuple[Tensor, Tensor, Tensor, None]:
        """Return the gradients of q, k and v, and None for a mask."""
        if self.output is not None and self.logsumexp is not None:
            bias, causal = self._kernel_mask(q, k, mask)
            grads = kernels.attend_backward(grad, q, k, v, bias, self.output, self.logsumexp, causal, self._scale(q))
        else:
            grads = attention_backward(grad, q, k, v, kept(self.attention_weights, self), self._scale(q))
        return grads if mask is None else (*grads, None)

    def _takes_kernel(self, q: Tensor, k: Tensor, v: Tensor) -> bool:
        recording = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
        if self.fused is False or recording:  # autograd can't differentiate the kernels' backward
            return False
        supported = kernels.supports(q, k, v)
        if self.fused and not supported:
            raise ValueError(f"no fused attention kernel for {q.dtype} {tuple(q.shape)} on {q.device.type}")
        return supported

    def _scale(self, q: Tensor) -> float:
        return q.shape[-1] ** -0.5 if self.scale is None else self.scale

    def _bias(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor | None:
        allowed = band(q.shape[-2], k.shape[-2], causal=self.causal, window=self.window, device=q.device)
        return additive(mask, allowed, q.dtype)

    def _kernel_mask(self, q: Tensor, k: Tensor, mask: Tensor | None) -> tuple[Tensor | None, bool]:
        """The bias and the causal flag of the kernels, which know the square causal mask by themselves."""
        if self.causal and mask is None and self.window is None and q.shape[-2] == k.shape[-2]:
            return None, True
        return self._bias(q, k, mask), False


def attention_weights(q: Tensor, k: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """``softmax(q @ k^T * scale + bias)``, ``[..., Sq, Sk]``, with zeros in rows that are minus infinity throughout."""
    scores = (q * scale) @ k.mT
    if bias is None:
        return torch.softmax(scores, -1)
    scores = scores + bias
    empty = torch.isneginf(scores).all(-1, keepdim=True)
    return torch.softmax(scores.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)


def attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, weights: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v for ``weights @ v``.

    ``dv = weights^T @ grad``; with ``ds`` the gradient of the scores, from ``grad @ v^T`` through the softmax:
    ``dq = ds @ k * scale`` and ``dk = ds^T @ q * scale``.
    """
    dv = weights.mT @ grad
    ds = softmax_backward(grad @ v.mT, weights) * scale
    return ds @ k, ds.mT @ q, dv


def reference(node: ScaledDotProductAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the same formula in plain torch operators, without an infinity on the way."""
    queries, keys = q.shape[-2], k.shape[-2]
    allowed = torch.ones(queries, keys, dtype=torch.bool, device=q.device)
    if node.causal:
        allowed = allowed.tril(keys - queries)
    if node.window is not None:
        allowed = allowed & torch.ones_like(allowed).triu(keys - queries - node.window).tril(
            keys - queries + node.window
        )
    scores = torch.einsum("...qd,...kd->...qk", q, k) * (q.shape[-1] ** -0.5 if node.scale is None else node.scale)
    if mask is not None:
        finite = mask if mask.dtype == torch.bool else ~torch.isneginf(mask)
        scores = scores if mask.dtype == torch.bool else scores + mask.masked_fill(~finite, 0.0)
        allowed = allowed & finite
    top = scores.masked_fill(~allowed, -1e300).amax(-1, keepdim=True).detach()
    powers = torch.where(allowed, torch.exp(torch.where(allowed, scores - top, 0.0)), 0.0)
    return torch.einsum("...qk,...kd->...qd", powers, v) / powers.sum(-1, keepdim=True).clamp(min=1e-300)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[ScaledDotProductAttention, tuple[Tensor, Tensor, Tensor]]:
    """Return a causal node without the fused kernels and inputs for it, with more keys than queries."""
    init = Init.seeded(seed, device, dtype)
    return ScaledDotProductAttention(causal=True, fused=False), (
        init.normal(2, 2, 3, 4),
        init.normal(2, 2, 5, 4),
        init.normal(2, 2, 5, 4),
    )


def example_fused(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[ScaledDotProductAttention, tuple[Tensor, ...]]:
    """Return a causal node that takes the fused kernels, and inputs for it, as many queries as keys."""
    init = Init.seeded(seed, device, dtype)
    q, k, v = init.normal(2, 2, 5, 8), init.normal(2, 2, 5, 8), init.normal(2, 2, 5, 8)
    return ScaledDotProductAttention(causal=True, fused=True), (q, k, v)


def example_fused_mask(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[ScaledDotProductAttention, tuple[Tensor, ...]]:
    """Return a node with a window that takes the fused kernels; its mask leaves one query without a key."""
    init = Init.seeded(seed, device, dtype)
    q, k, v = init.normal(3, 4, 8), init.normal(3, 6, 8), init.normal(3, 6, 8)
    mask = init.uniform(3, 4, 6) > -0.5
    mask[0, 1] = False
    return ScaledDotProductAttention(causal=True, window=4, scale=0.3, fused=True), (q, k, v, mask)


def example_mask(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[ScaledDotProductAttention, tuple[Tensor, ...]]:
    """Return a node without the fused kernels; its mask leaves one query without a key, and values are narrower."""
    init = Init.seeded(seed, device, dtype)
    q, k, v = init.normal(3, 4, 5), init.normal(3, 6, 5), init.normal(3, 6, 2)
    mask = init.uniform(3, 4, 6) > -0.5
    mask[0, 1] = False
    return ScaledDotProductAttention(window=4, scale=0.3, fused=False), (q, k, v, mask)
