"""A mixture of experts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.layers.core import ffn, moe_gate
from cachelint.runtime.layers.core.ffn import FFN
from cachelint.runtime.layers.core.moe_gate import MoEGate
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept
from cachelint.runtime.layers.numerics import rows


class MixtureOfExperts(SaverAware, Node):
    """``y_t = sum_j w_tj * expert_(i_tj)(x_t)``, plus ``shared(x_t)``: hidden ``[..., M]``, gate weight ``[E, M]``.

    ``gate`` chooses the experts of each token and weighs them. An expert runs once, on the tokens that chose it (none,
    if none did), and its live input in backward is the same rows of the live hidden states. Saved are choice, weights
    and the experts' results.

    Raises:
        ValueError: the gate weight has not one row an expert.
    """

    def __init__(self, gate: MoEGate, experts: Sequence[Node], shared: Node | None = None) -> None:
        self.gate = gate
        self.experts = list(experts)
        self.shared = shared
        self.indices: Tensor | None = None
        self.weights: Tensor | None = None
        self.expert_outs: tuple[Tensor, ...] = ()

    def forward(self, hidden: Tensor, gate_weight: Tensor) -> Tensor:
        """Return the weighted sum of the experts' results."""
        if gate_weight.shape[0] != len(self.experts):
            raise ValueError(
                f"the gate weight {list(gate_weight.shape)} has not one row for {len(self.experts)} experts"
            )
        tokens = rows(hidden)
        indices, weights = self.gate.route(tokens, gate_weight)
        chosen = _assignments(indices, len(self.experts))
        outs = tuple(expert.forward(tokens[token]) for expert, (token, _) in zip(self.experts, chosen, strict=True))
        self.indices = indices if self.training else None
        self.weights = weights if self.training else None
        self.expert_outs = outs if self.training else ()
        self.save_for_backward(self.indices, self.weights, *self.expert_outs)

        share = torch.cat([weights[at].unsqueeze(-1) for at in chosen])
        token = torch.cat([token for token, _ in chosen])
        joined = torch.cat(outs) * share
        del share
        y = joined.new_zeros(tokens.shape[0], joined.shape[-1]).index_add(0, token, joined)
        del token, joined
        if self.shared is not None:
            y = y + self.shared.forward(tokens)
        return y.reshape(*hidden.shape[:-1], -1)

    def backward(self, grad: Tensor, hidden: Tensor, gate_weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of hidden and gate weight; add those of the experts."""
        tokens, dy = rows(hidden), rows(grad)
        weights = kept(self.weights, self)
        chosen = _assignments(kept(self.indices, self), len(self.experts))
        dtokens, dweights = torch.zeros_like(tokens), torch.zeros_like(weights)
        for expert, at, out in zip(self.experts, chosen, self.expert_outs, strict=True):
            token, _ = at
            dweights = dweights.index_put(at, (dy[token] * out).sum(-1))
            (dx,) = expert.backward(dy[token] * weights[at].unsqueeze(-1), tokens[token])
            dtokens = dtokens.index_add(0, token, dx)
        if self.shared is not None:
            dtokens = dtokens + self.shared.backward(dy, tokens)[0]
        drouted, dgate_weight = self.gate.backward(dweights, tokens, gate_weight)
        return (dtokens + drouted).reshape(hidden.shape), dgate_weight


def _assignments(indices: Tensor, experts: int) -> list[tuple[Tensor, Tensor]]:
    """For each expert, the tokens that chose it and with which of their choices."""
    found = [torch.nonzero(indices == expert) for expert in range(experts)]
    return [(at[:, 0], at[:, 1]) for at in found]


def reference(node: MixtureOfExperts, hidden: Tensor, gate_weight: Tensor) -> Tensor:
    """Return the same mixture in plain torch operators, for ``FFN`` experts: every expert runs on every token."""
    weights = moe_gate.reference(node.gate, hidden, gate_weight)
    indices = node.gate.route(hidden, gate_weight).indices
    share = torch.zeros_like(hidden @ gate_weight.mT).scatter(-1, indices, weights)
    modules = [expert for expert in node.experts if isinstance(expert, FFN)]
    y = sum((share[..., e, None] * ffn.reference(expert, hidden) for e, expert in enumerate(modules)), hidden * 0)
    return y + ffn.reference(node.shared, hidden) if isinstance(node.shared, FFN) else y


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MixtureOfExperts, tuple[Tensor, Tensor]]:
    """Return a node of three experts and a shared one, tokens and a gate weight."""
    init = Init.seeded(seed, device, dtype)
    experts = [FFN(2, 3, 2, init=init) for _ in range(3)]
    node = MixtureOfExperts(MoEGate(2), experts, FFN(2, 4, 2, init=init))
    return node, (init.normal(3, 2), init.normal(3, 2, std=2.0))


def example_idle_expert(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MixtureOfExperts, tuple[Tensor, ...]]:
    """Return a node with an expert that no token chooses, tokens and a gate weight."""
    init = Init.seeded(seed, device, dtype)
    hidden, gate_weight = init.normal(2, 3, 4), init.normal(4, 4, std=2.0)
    bias = torch.tensor([0.0, 0.0, 0.0, -2.0], device=device, dtype=dtype)
    node = MixtureOfExperts(MoEGate(2, routing_bias=bias), [FFN(4, 3, 4, init=init) for _ in range(4)])
    return node, (hidden, gate_weight)
