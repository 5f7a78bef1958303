"""The selective state-space block with a rotating, complex-valued state."""

from __future__ import annotations

import torch
from torch import Tensor

from cachelint.runtime.layers.embeddings import rotary_positional_embedding as rotary
from cachelint.runtime.layers.embeddings.rotary_positional_embedding import RotaryPositionalEmbedding
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.ssm import bc_norm
from cachelint.runtime.layers.ssm.bc_norm import BCNorm
from cachelint.runtime.layers.ssm.mamba_block import MambaBlock, reference_block
from cachelint.runtime.layers.ssm.selective_scan import Discretisation


class ComplexSSMState(MambaBlock):
    """A ``MambaBlock`` whose B and C are normalised and then rotated by the position before the scan.

    The rotation turns each pair of states into one complex state, so ``states`` must be even. ``base`` is that of
    ``RotaryPositionalEmbedding``; the other options are those of ``MambaBlock``. Norm and rotation are cheap, so
    backward runs them again on the saved projection.

    Raises:
        ValueError: the number of states is odd.
    """

    def __init__(
        self,
        width: int,
        *,
        inner: int | None = None,
        states: int = 16,
        rank: int | None = None,
        taps: int = 4,
        base: float = 10000.0,
        rule: Discretisation = "euler",
        keep_states: bool = True,
        init: Init | None = None,
    ) -> None:
        init = init or Init()
        super().__init__(
            width, inner=inner, states=states, rank=rank, taps=taps, rule=rule, keep_states=keep_states, init=init
        )
        self.norm_b = BCNorm(states, init=init)
        self.norm_c = BCNorm(states, init=init)
        self.rope = RotaryPositionalEmbedding(states, base=base)

    def _matrices(self, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        normed_b, normed_c = self.norm_b.forward(_by_time(b)), self.norm_c.forward(_by_time(c))
        return _by_time(self.rope.forward(normed_b)), _by_time(self.rope.forward(normed_c))

    def _matrices_backward(self, db: Tensor, dc: Tensor, x_bc_dt: Tensor) -> tuple[Tensor, Tensor]:
        b, c = map(_by_time, self._raw_matrices(x_bc_dt))
        dnormed_b = self.rope.backward(_by_time(db), self.norm_b.forward(b))[0]
        dnormed_c = self.rope.backward(_by_time(dc), self.norm_c.forward(c))[0]
        (db,), (dc,) = self.norm_b.backward(dnormed_b, b), self.norm_c.backward(dnormed_c, c)
        return _by_time(db), _by_time(dc)


def _by_time(x: Tensor) -> Tensor:
    """Swap the axes of time and groups: the rotation wants time next to the last."""
    return x.transpose(1, 2)


def reference(node: ComplexSSMState, x: Tensor) -> Tensor:
    """Return the same block in plain torch operators, with a loop over time."""

    def matrices(b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        b = bc_norm.reference(node.norm_b, b).transpose(1, 2)
        c = bc_norm.reference(node.norm_c, c).transpose(1, 2)
        return rotary.reference(node.rope, b).transpose(1, 2), rotary.reference(node.rope, c).transpose(1, 2)

    return reference_block(node, x, matrices, lambda y: y)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[ComplexSSMState, tuple[Tensor]]:
    """Return a node and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = ComplexSSMState(2, inner=3, states=4, rank=2, taps=2, init=init)
    init.jitter(node)
    return node, (init.normal(1, 3, 2),)


def example_trapezoid(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[ComplexSSMState, tuple[Tensor, ...]]:
    """Return a node that scans again in backward, and an input for it."""
    init = Init.seeded(seed, device, dtype)
    node = ComplexSSMState(3, states=6, rule="trapezoid", keep_states=False, init=init)
    init.jitter(node)
    return node, (init.normal(2, 5, 3),)
