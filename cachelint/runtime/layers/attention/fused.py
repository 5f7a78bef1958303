"""torch's fused attention kernels, forward and backward, as two functions of explicit arguments.

The kernels keep the row-wise log-sum-exp of the scores in place of the attention weights: ``[B, H, Sq]`` in place of
``[B, H, Sq, Sk]``.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

aten = torch.ops.aten

# Strides of a bias that the CUDA kernel reads must be multiples of this.
BIAS_ALIGNMENT = 16


def supports(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether there is a kernel for these tensors."""
    if q.dim() not in (3, 4) or k.shape != v.shape or q.shape[:-2] != k.shape[:-2] or min(q.shape + k.shape) == 0:
        return False
    if q.device.type == "cpu":
        return q.is_floating_point()
    return q.device.type == "cuda" and q.dtype != torch.float64 and q.shape[-1] % 8 == 0


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """The attention output, ``[..., Sq, D]``, and what ``attend_backward`` wants as ``logsumexp``.

    q, k and v: ``[..., S, D]`` with one or two leading axes. ``bias`` is added to the scores and broadcasts against
    them. ``causal`` aligns the first query with the first key.
    """
    q4, k4, v4, bias4 = _lift(q), _lift(k), _lift(v), _bias(bias, q, k)
    if q.device.type == "cuda":
        output, logsumexp, _, _ = aten._scaled_dot_product_efficient_attention(
            q4, k4, v4, bias4, True, 0.0, causal, scale=scale
        )
    else:
        output, logsumexp = aten._scaled_dot_product_flash_attention_for_cpu(
            q4, k4, v4, 0.0, causal, attn_mask=bias4, scale=scale
        )
    return output.view(q.shape) if q.dim() == 3 else output, logsumexp


def attend_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    output: Tensor,
    logsumexp: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v."""
    grad4, q4, k4, v4, output4, bias4 = _lift(grad), _lift(q), _lift(k), _lift(v), _lift(output), _bias(bias, q, k)
    if q.device.type == "cuda":
        unused = torch.zeros((), dtype=torch.int64, device=q.device)  # the dropout's random state
        dq, dk, dv, _ = aten._scaled_dot_product_efficient_attention_backward(
            grad4,
            q4,
            k4,
            v4,
            bias4,
            output4,
            logsumexp,
            unused,
            unused,
            0.0,
            [True, True, True, False],
            causal,
            scale=scale,
        )
    else:
        dq, dk, dv = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad4, q4, k4, v4, output4, logsumexp, 0.0, causal, attn_mask=bias4, scale=scale
        )
    return dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)


def _lift(x: Tensor) -> Tensor:
    return x if x.dim() == 4 else x.unsqueeze(0)


def _bias(bias: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """The bias with the shape of the scores, its rows aligned for CUDA."""
    if bias is None:
        return None
    keys = k.shape[-2]
    if q.device.type == "cuda":
        bias = F.pad(bias.expand(*bias.shape[:-1], keys), (0, -keys % BIAS_ALIGNMENT))[..., :keys]
    q4 = _lift(q)
    return bias.expand(*q4.shape[:-1], keys)
