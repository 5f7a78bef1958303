"""The router of a mixture of experts."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.layers.activations.softmax import softmax_backward
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.kept import kept
from cachelint.runtime.layers.numerics import rows, wide

Scoring = Literal["softmax", "sigmoid"]


class Routing(NamedTuple):
    """Which experts each token goes to, int64 ``[..., k]``, and how much each counts, ``[..., k]``."""

    indices: Tensor
    weights: Tensor


class MoEGate(SaverAware, Node):
    """The weights of the ``top_k`` best experts: hidden ``[..., M]`` and gate weight ``[E, M]`` to ``[..., top_k]``.

    The scores are ``softmax`` or ``sigmoid`` of ``hidden @ gate_weight^T``. ``normalise`` divides the weights by their
    sum; ``scale`` multiplies them. ``routing_bias`` ``[E]`` is added for the choice of experts alone, and has no
    gradient. Equal scores go to the lower number. Logits are computed in float32, where near ties are rare: a choice
    that flips is a jump. Saved are scores and choice. Sources: Shazeer et al., arXiv:1701.06538; the bias: Wang et
    al., "Auxiliary-Loss-Free Load Balancing", arXiv:2408.15664.
    """

    def __init__(
        self,
        top_k: int,
        *,
        scoring: Scoring = "softmax",
        normalise: bool = True,
        scale: float = 1.0,
        routing_bias: Tensor | None = None,
    ) -> None:
        self.top_k = top_k
        self.scoring = scoring
        self.normalise = normalise
        self.scale = scale
        self.routing_bias = routing_bias
        self.scores: Tensor | None = None
        self.indices: Tensor | None = None

    def forward(self, hidden: Tensor, gate_weight: Tensor) -> Tensor:
        """Return the weights of the chosen experts, best first."""
        return self.route(hidden, gate_weight).weights

    def route(self, hidden: Tensor, gate_weight: Tensor) -> Routing:
        """Return the chosen experts with their weights."""
        logits = wide(hidden) @ wide(gate_weight).mT
        scores = torch.softmax(logits, -1) if self.scoring == "softmax" else torch.sigmoid(logits)
        ranked = scores if self.routing_bias is None else scores + self.routing_bias
        indices = torch.sort(ranked, stable=True, dim=-1, descending=True).indices[..., : self.top_k]
        self.scores = scores if self.training else None
        self.indices = indices if self.training else None
        self.save_for_backward(self.scores, self.indices)
        weights = scores.gather(-1, indices)
        if self.normalise:
            weights = weights / weights.sum(-1, keepdim=True)
        return Routing(indices, (weights * self.scale).to(hidden.dtype))

    def backward(self, grad: Tensor, hidden: Tensor, gate_weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of hidden and gate weight."""
        scores, indices = kept(self.scores, self), kept(self.indices, self)
        dweights = wide(grad) * self.scale
        if self.normalise:
            picked = scores.gather(-1, indices)
            total = picked.sum(-1, keepdim=True)
            dweights = (dweights - (dweights * picked).sum(-1, keepdim=True) / total) / total
        dscores = torch.zeros_like(scores).scatter(-1, indices, dweights)
        dlogits = softmax_backward(dscores, scores) if self.scoring == "softmax" else dscores * scores * (1.0 - scores)
        dhidden = dlogits @ wide(gate_weight)
        dgate_weight = rows(dlogits).mT @ rows(wide(hidden))
        return dhidden.to(hidden.dtype), dgate_weight.to(gate_weight.dtype)


def reference(node: MoEGate, hidden: Tensor, gate_weight: Tensor) -> Tensor:
    """Return the same weights in plain torch operators."""
    logits = torch.einsum("...m,em->...e", hidden, gate_weight)
    scores = logits.exp() / logits.exp().sum(-1, keepdim=True) if node.scoring == "softmax" else torch.sigmoid(logits)
    ranked = scores if node.routing_bias is None else scores + node.routing_bias
    weights = torch.take_along_dim(scores, ranked.topk(node.top_k, -1).indices, -1)
    return node.scale * (torch.nn.functional.normalize(weights, p=1.0, dim=-1) if node.normalise else weights)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MoEGate, tuple[Tensor, Tensor]]:
    """Return a node, tokens and a gate weight that tells the experts apart."""
    init = Init.seeded(seed, device, dtype)
    return MoEGate(2), (init.normal(3, 2), init.normal(3, 2, std=2.0))


def example_sigmoid(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MoEGate, tuple[Tensor, ...]]:
    """Return a node with a bias for the choice and plain weights, tokens and a gate weight."""
    init = Init.seeded(seed, device, dtype)
    bias = init.uniform(4, low=-0.2, high=0.2)
    node = MoEGate(3, scoring="sigmoid", normalise=False, scale=2.0, routing_bias=bias)
    return node, (init.normal(2, 3, 5), init.normal(4, 5))


def example_single(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[MoEGate, tuple[Tensor, ...]]:
    """Return a node that sends each token to one expert, tokens and a gate weight."""
    init = Init.seeded(seed, device, dtype)
    return MoEGate(1, normalise=False), (init.normal(6, 3), init.normal(3, 3))
