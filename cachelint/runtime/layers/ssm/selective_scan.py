"""What the state-space layers share: a scan over time, the selective state update, and a causal convolution.

Pure functions of explicit arguments. Axes: batch B, time S, then the channels of x, ``[B, S, I]`` or, by groups,
``[B, S, H, P]``; B and C carry the N states in place of the last axis. The states are ``[B, S, I, N]`` or
``[B, S, H, P, N]``.

Source of the formulas: Gu and Dao, "Mamba", arXiv:2312.00752.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

Discretisation = Literal["euler", "trapezoid"]


class Selection(NamedTuple):
    """The operands of one selective scan, of one dtype.

    x and dt: ``[B, S, I]``. a: ``[I, N]``, negative. b and c: ``[B, S, N]``. d: ``[I]``. By groups, I stands for
    ``H, P``, and b and c are ``[B, S, H, N]``.
    """

    x: Tensor
    dt: Tensor
    a: Tensor
    b: Tensor
    c: Tensor
    d: Tensor


def linear_scan(decay: Tensor, drive: Tensor) -> Tensor:
    """The states ``h_t = decay_t * h_(t-1) + drive_t`` along axis 1, from ``h = 0``. Both: one shape ``[B, S, ...]``.

    Doubles the reach of every step (Hillis and Steele), so it takes log2(S) passes and no loop over time.
    """
    reach = 1
    while reach < drive.shape[1]:
        carried = drive[:, reach:] + decay[:, reach:] * drive[:, :-reach]
        drive = torch.cat((drive[:, :reach], carried), 1)
        decay = torch.cat((decay[:, :reach], decay[:, reach:] * decay[:, :-reach]), 1)
        reach *= 2
    return drive


def scan_states(s: Selection, rule: Discretisation) -> Tensor:
    """The states of the scan, ``[B, S, I, N]``.

    ``h_t = exp(dt a) h_(t-1) + w dt b x``; w is 1 for ``euler`` and ``(1 + exp(dt a)) / 2`` for ``trapezoid``.
    """
    decay = (s.dt.unsqueeze(-1) * s.a).exp()
    drive = (s.dt * s.x).unsqueeze(-1) * s.b.unsqueeze(-2)
    if rule == "trapezoid":
        drive = drive * (1.0 + decay) / 2.0
    return linear_scan(decay, drive)


def read_states(s: Selection, states: Tensor) -> Tensor:
    """The result of the scan, ``y = sum_n c h + d x``, of the shape of x."""
    return (states * s.c.unsqueeze(-2)).sum(-1) + s.d * s.x


def selective_scan_backward(grad: Tensor, s: Selection, states: Tensor, rule: Discretisation) -> Selection:
    """The gradient of each operand, given the gradient of y and the states."""
    decay = (s.dt.unsqueeze(-1) * s.a).exp()
    before = torch.cat((torch.zeros_like(states[:, :1]), states[:, :-1]), 1)
    upstream = grad.unsqueeze(-1)

    # The same scan against time: dh_t = c_t dy_t + decay_(t+1) dh_(t+1).
    later = torch.cat((decay[:, 1:], torch.ones_like(decay[:, :1])), 1)
    dstates = linear_scan(later.flip(1), (upstream * s.c.unsqueeze(-2)).flip(1)).flip(1)

    ddecay = dstates * before
    plain = s.x.unsqueeze(-1) * s.b.unsqueeze(-2)
    weighted = dstates
    if rule == "trapezoid":
        weighted = dstates * (1.0 + decay) / 2.0
        ddecay = ddecay + dstates * s.dt.unsqueeze(-1) * plain / 2.0
    dpower = ddecay * decay
    dinput = (weighted * s.b.unsqueeze(-2)).sum(-1)
    return Selection(
        x=dinput * s.dt + grad * s.d,
        dt=(dpower * s.a).sum(-1) + (weighted * plain).sum(-1),
        a=(dpower * s.dt.unsqueeze(-1)).sum((0, 1)),
        b=(weighted * (s.dt * s.x).unsqueeze(-1)).sum(-2),
        c=(upstream * states).sum(-2),
        d=(grad * s.x).sum((0, 1)),
    )


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Each channel's own convolution over the K last steps: x ``[B, S, I]``, weight ``[I, K]``, bias ``[I]``."""
    taps = weight.shape[1]
    padded = F.pad(x, (0, 0, taps - 1, 0))
    y = sum(
        (weight[:, k] * padded[:, k : k + x.shape[1]] for k in range(1, taps)), weight[:, 0] * padded[:, : x.shape[1]]
    )
    return y if bias is None else y + bias


def causal_conv_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight and bias of ``causal_conv``."""
    taps = weight.shape[1]
    padded = F.pad(x, (0, 0, taps - 1, 0))
    dx = causal_conv(grad.flip(1), weight).flip(1)
    dweight = torch.stack([(grad * padded[:, k : k + x.shape[1]]).sum((0, 1)) for k in range(taps)], -1)
    return dx, dweight, grad.sum((0, 1))


def silu_derivative(x: Tensor) -> Tensor:
    """The derivative of ``x * sigmoid(x)``."""
    gate = torch.sigmoid(x)
    return gate * (1.0 + x * (1.0 - gate))


def scan_by_steps(s: Selection, rule: Discretisation) -> Tensor:
    """The scan as a loop over time, for comparison."""
    state = torch.zeros_like(s.x[:, 0].unsqueeze(-1) * s.b[:, 0].unsqueeze(-2))
    results = []
    for t in range(s.x.shape[1]):
        decay = torch.exp(s.dt[:, t].unsqueeze(-1) * s.a)
        step = s.dt[:, t].unsqueeze(-1) * (1 if rule == "euler" else (1 + decay) / 2)
        state = decay * state + step * s.b[:, t].unsqueeze(-2) * s.x[:, t].unsqueeze(-1)
        results.append((state * s.c[:, t].unsqueeze(-2)).sum(-1) + s.d * s.x[:, t])
    return torch.stack(results, 1)
