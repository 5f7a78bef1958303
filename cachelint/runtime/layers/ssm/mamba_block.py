"""The selective state-space block."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from cachelint.runtime import Node, Parameter, SaverAware
from cachelint.runtime.layers.core.linear import Linear
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept
from cachelint.runtime.layers.numerics import sum_leading, wide
from cachelint.runtime.layers.ssm.selective_scan import (
    Discretisation,
    Selection,
    causal_conv,
    causal_conv_backward,
    read_states,
    scan_by_steps,
    scan_states,
    selective_scan_backward,
    silu_derivative,
)


class MambaBlock(SaverAware, Node):
    """Projection, causal convolution, selective scan, gate, projection: ``[B, S, width]`` to the same.

    ``in_proj`` gives the scan's input and the gate z, ``inner`` channels each (default: twice the width). The input
    passes a depthwise causal convolution over ``taps`` steps and silu. ``x_proj`` selects from it a step size of rank
    ``rank`` (default: a sixteenth of the width) and B and C, ``states`` each; with ``groups``, each group of channels
    has its own B and C. The scan runs in float32 at least; ``rule`` is how it discretises, see ``scan_states``.

    Saved are the results of the projections and of the convolution, and the states, unless ``keep_states`` is off: then
    backward scans again. Everything else follows from them elementwise. Source: Gu and Dao, "Mamba", arXiv:2312.00752.
    """

    def __init__(
        self,
        width: int,
        *,
        inner: int | None = None,
        states: int = 16,
        rank: int | None = None,
        groups: int = 1,
        taps: int = 4,
        rule: Discretisation = "euler",
        keep_states: bool = True,
        init: Init | None = None,
    ) -> None:
        init = init or Init()
        inner = 2 * width if inner is None else inner
        if inner % groups:
            raise ValueError(f"{inner} channels can't be split into {groups} groups")
        self.rank = math.ceil(width / 16) if rank is None else rank
        self.groups = groups
        self.rule = rule
        self.keep_states = keep_states

        self.in_proj = Linear(width, 2 * inner, init=init)
        bound = taps**-0.5
        self.conv_weight = Parameter(init.uniform(inner, taps, low=-bound, high=bound), "conv_weight")
        self.conv_bias = Parameter(init.uniform(inner, low=-bound, high=bound), "conv_bias")
        self.x_proj = Linear(inner, self.rank + 2 * groups * states, init=init)
        self.dt_proj = Linear(self.rank, inner, init=init)
        step = init.uniform(inner, low=math.log(1e-3), high=math.log(1e-1)).exp()
        self.dt_bias = Parameter(step + (-(-step).expm1()).log(), "dt_bias")  # the inverse of softplus
        ladder = torch.arange(1, states + 1, dtype=torch.float64).log()
        self.a_log = Parameter(init.full((inner, states), 0.0) + ladder.to(step), "a_log")
        self.d = Parameter(init.full((inner,), 1.0), "d")
        self.out_proj = Linear(inner, width, init=init)

        self.projected: Tensor | None = None
        self.x_conv: Tensor | None = None
        self.x_bc_dt: Tensor | None = None
        self.dt_raw: Tensor | None = None
        self.states: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the result for every step of x."""
        projected = self.in_proj.forward(x)
        x_pre_conv, z = projected.chunk(2, -1)
        x_conv = causal_conv(x_pre_conv, self.conv_weight.value, self.conv_bias.value)
        x_bc_dt = self.x_proj.forward(F.silu(x_conv))
        dt_raw = self.dt_proj.forward(x_bc_dt[..., : self.rank])
        selection = self._selection(x_conv, x_bc_dt, dt_raw)
        states = scan_states(selection, self.rule)
        y = self._mix(read_states(selection, states)).flatten(-2)

        self.projected = projected if self.training else None
        self.x_conv = x_conv if self.training else None
        self.x_bc_dt = x_bc_dt if self.training else None
        self.dt_raw = dt_raw if self.training else None
        self.states = states if self.training and self.keep_states else None
        self.save_for_backward(self.projected, self.x_conv, self.x_bc_dt, self.dt_raw, self.states)
        return self.out_proj.forward((y * F.silu(wide(z))).to(x.dtype))

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x; add those of the parameters."""
        x_pre_conv, z = kept(self.projected, self).chunk(2, -1)
        z = wide(z)
        x_conv, x_bc_dt, dt_raw = kept(self.x_conv, self), kept(self.x_bc_dt, self), kept(self.dt_raw, self)
        selection = self._selection(x_conv, x_bc_dt, dt_raw)
        states = scan_states(selection, self.rule) if self.states is None else self.states
        y_raw = read_states(selection, states)
        y = self._mix(y_raw).flatten(-2)

        (dgated,) = self.out_proj.backward(grad, (y * F.silu(z)).to(x.dtype))
        dz = (dgated * y * silu_derivative(z)).to(x.dtype)
        dy = self._grouped(dgated * F.silu(z))
        dselection = selective_scan_backward(self._mix_backward(dy, y_raw), selection, states, self.rule)
        self.a_log.accumulate((dselection.a * selection.a).flatten(0, 1))
        self.d.accumulate(dselection.d.flatten())

        ddt_raw = dselection.dt.flatten(-2) * torch.sigmoid(self._step(dt_raw))
        self.dt_bias.accumulate(sum_leading(ddt_raw))
        (dlow,) = self.dt_proj.backward(ddt_raw.to(x.dtype), x_bc_dt[..., : self.rank])
        db, dc = self._matrices_backward(dselection.b, dselection.c, x_bc_dt)
        dx_bc_dt = torch.cat((dlow, db.flatten(-2).to(x.dtype), dc.flatten(-2).to(x.dtype)), -1)
        (dactive,) = self.x_proj.backward(dx_bc_dt, F.silu(x_conv))
        dx_conv = ((dactive + dselection.x.flatten(-2)) * silu_derivative(wide(x_conv))).to(x.dtype)
        dx_pre_conv, dweight, dbias = causal_conv_backward(dx_conv, x_pre_conv, self.conv_weight.value)
        self.conv_weight.accumulate(dweight)
        self.conv_bias.accumulate(dbias)
        return self.in_proj.backward(torch.cat((dx_pre_conv, dz), -1), x)

    def _selection(self, x_conv: Tensor, x_bc_dt: Tensor, dt_raw: Tensor) -> Selection:
        """Return the operands of the scan, by groups of channels: ``[B, S, groups, ...]``."""
        b, c = self._matrices(*self._raw_matrices(x_bc_dt))
        return Selection(
            x=self._grouped(F.silu(wide(x_conv))),
            dt=self._grouped(F.softplus(self._step(dt_raw))),
            a=self._grouped(-wide(self.a_log.value).exp(), 0),
            b=b,
            c=c,
            d=self._grouped(wide(self.d.value), 0),
        )

    def _step(self, dt_raw: Tensor) -> Tensor:
        """Return the step before softplus.

        The bias is added in float32: far below zero softplus is an exponential, and turns the rounding of a sum into a
        relative error of the step.
        """
        return wide(dt_raw) + self.dt_bias.value

    def _grouped(self, channels: Tensor, axis: int = -1) -> Tensor:
        return torch.unflatten(channels, axis, (self.groups, -1))

    def _raw_matrices(self, x_bc_dt: Tensor) -> tuple[Tensor, Tensor]:
        b, c = wide(x_bc_dt[..., self.rank :]).chunk(2, -1)
        return self._grouped(b), self._grouped(c)

    def _matrices(self, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Return B and C as the scan uses them; here as they were projected."""
        return b, c

    def _matrices_backward(self, db: Tensor, dc: Tensor, x_bc_dt: Tensor) -> tuple[Tensor, Tensor]:
        return db, dc

    def _mix(self, y: Tensor) -> Tensor:
        """Return the scan's result ``[B, S, groups, channels]``, mixed over the groups; here as it is."""
        return y

    def _mix_backward(self, grad: Tensor, y: Tensor) -> Tensor:
        return grad


def reference(node: MambaBlock, x: Tensor) -> Tensor:
    """Return the same block in plain torch operators, with a loop over time."""
    return reference_block(node, x, lambda b, c: (b, c), lambda y: y)


def reference_block(
    node: MambaBlock,
    x: Tensor,
    matrices: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    mix: Callable[[Tensor], Tensor],
) -> Tensor:
    """The block with ``matrices`` between the projection of B and C and the scan, and ``mix`` after the scan."""
    channels, taps = node.conv_weight.value.shape
    x_pre_conv, z = torch.tensor_split(x @ node.in_proj.weight.value, 2, -1)
    kernel = node.conv_weight.value.unsqueeze(1)
    x_conv = F.conv1d(x_pre_conv.transpose(1, 2), kernel, node.conv_bias.value, padding=taps - 1, groups=channels)
    active = F.silu(x_conv[..., : x.shape[1]].transpose(1, 2))
    x_bc_dt = active @ node.x_proj.weight.value
    low, rest = x_bc_dt[..., : node.rank], x_bc_dt[..., node.rank :]
    b, c = matrices(*torch.unflatten(rest, -1, (2, node.groups, -1)).unbind(-3))

    def grouped(channels: Tensor, axis: int = -1) -> Tensor:
        return torch.unflatten(channels, axis, (node.groups, -1))

    selection = Selection(
        x=grouped(active),
        dt=grouped(F.softplus(low @ node.dt_proj.weight.value + node.dt_bias.value)),
        a=grouped(-node.a_log.value.exp(), 0),
        b=b,
        c=c,
        d=grouped(node.d.value, 0),
    )
    y = mix(scan_by_steps(selection, node.rule)).flatten(-2)
    return (y * F.silu(z)) @ node.out_proj.weight.value


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[MambaBlock, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = MambaBlock(2, inner=3, states=2, rank=2, taps=2, init=init)
    init.jitter(node)
    return node, (init.normal(1, 3, 2),)


def example_trapezoid(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MambaBlock, tuple[Tensor, ...]]:
    """Return a node that scans again in backward, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = MambaBlock(4, groups=2, states=2, rule="trapezoid", keep_states=False, init=init)
    init.jitter(node)
    return node, (init.normal(2, 5, 4),)
