"""The selective state-space block with several heads that are mixed after the scan."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime import Parameter
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.ssm.mamba_block import MambaBlock, reference_block
from cachelint.runtime.layers.ssm.selective_scan import Discretisation


class MIMOMambaBlock(MambaBlock):
    """A ``MambaBlock`` whose heads have their own B, C and states; ``mix`` ``[heads, heads]`` combines their results.

    ``y[h] = sum_k mix[h, k] y_raw[k]``, starting from the identity. The options are those of ``MambaBlock``.
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int = 4,
        inner: int | None = None,
        states: int = 16,
        rank: int | None = None,
        taps: int = 4,
        rule: Discretisation = "euler",
        keep_states: bool = True,
        init: Init | None = None,
    ) -> None:
        init = init or Init()
        super().__init__(
            width,
            inner=inner,
            states=states,
            rank=rank,
            groups=heads,
            taps=taps,
            rule=rule,
            keep_states=keep_states,
            init=init,
        )
        identity = init.full((heads, heads), 0.0)
        identity.fill_diagonal_(1.0)
        self.mix = Parameter(identity, "mix")

    def _mix(self, y: Tensor) -> Tensor:
        return self.mix.value.to(y.dtype) @ y

    def _mix_backward(self, grad: Tensor, y: Tensor) -> Tensor:
        self.mix.accumulate((grad @ y.transpose(-1, -2)).sum((0, 1)))
        return self.mix.value.to(grad.dtype).transpose(0, 1) @ grad


def reference(node: MIMOMambaBlock, x: Tensor) -> Tensor:
    """Return the same block in plain torch operators, with a loop over time."""
    return reference_block(node, x, lambda b, c: (b, c), lambda y: torch.einsum("hk,bskp->bshp", node.mix.value, y))


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MIMOMambaBlock, tuple[Tensor]]:
    """Return a node of two heads, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = MIMOMambaBlock(2, heads=2, inner=6, states=2, rank=2, taps=2, init=init)
    init.jitter(node)
    return node, (init.normal(1, 3, 2),)


def example_trapezoid(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MIMOMambaBlock, tuple[Tensor, ...]]:
    """Return a node that scans again in backward, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = MIMOMambaBlock(3, heads=3, states=2, rule="trapezoid", keep_states=False, init=init)
    init.jitter(node)
    return node, (init.normal(2, 5, 3),)
