"""Polynomial features."""

from __future__ import annotations

from itertools import combinations_with_replacement

import torch
from torch import Tensor

from cachelint.runtime import Node
from cachelint.runtime.layers.init import Init


class PolynomialExpansion(Node):
    """Every monomial of ``[..., N]`` up to ``degree``, ``[..., Terms]``, by degree and then in lexical order.

    A monomial is a product of ``degree`` factors out of ``[x_0, ..., x_(N-1), 1]``. The product of all factors but
    one is formed without a division, so zeros are no special case. The constant term is left out without
    ``include_constant``.
    """

    def __init__(self, features: int, degree: int = 2, *, include_constant: bool = True) -> None:
        if features < 1 or degree < 1:
            raise ValueError(f"features and degree must be positive, not {features} and {degree}")
        self.features = features
        self.degree = degree
        self.factors = tuple(
            chosen + (features,) * (degree - size)
            for size in range(0 if include_constant else 1, degree + 1)
            for chosen in combinations_with_replacement(range(features), size)
        )

    @property
    def exponents(self) -> tuple[tuple[int, ...], ...]:
        """The power of each feature in each term."""
        return tuple(tuple(term.count(feature) for feature in range(self.features)) for term in self.factors)

    def forward(self, x: Tensor) -> Tensor:
        """Return the terms."""
        return self._gather(x).prod(-1)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        """Return the gradient of x."""
        values = self._gather(x)
        others = torch.stack(
            [torch.cat([values[..., :i], values[..., i + 1 :]], -1).prod(-1) for i in range(self.degree)], -1
        )
        per_factor = (grad.unsqueeze(-1) * others).flatten(-2)
        total = per_factor.new_zeros(*x.shape[:-1], self.features + 1)
        return (total.index_add(-1, self._index(x), per_factor)[..., : self.features],)

    def _index(self, x: Tensor) -> Tensor:
        return torch.tensor(self.factors, device=x.device).flatten()

    def _gather(self, x: Tensor) -> Tensor:
        """The factors of each term, ``[..., Terms, degree]``."""
        extended = torch.cat([x, x.new_ones(*x.shape[:-1], 1)], -1)
        return extended[..., self._index(x)].view(*x.shape[:-1], len(self.factors), self.degree)


def reference(node: PolynomialExpansion, x: Tensor) -> Tensor:
    """Return the same terms as products of powers."""
    terms = [
        torch.stack([x[..., feature] ** power for feature, power in enumerate(powers)]).prod(0)
        for powers in node.exponents
    ]
    return torch.stack(terms, -1)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[PolynomialExpansion, tuple[Tensor]]:
    """Return a node and an input for it."""
    return PolynomialExpansion(2, 3), (Init.seeded(seed, device, dtype).normal(2, 2),)


def example_without_constant(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[PolynomialExpansion, tuple[Tensor, ...]]:
    """Return a node without the constant term and an input with zeros."""
    init = Init.seeded(seed, device, dtype)
    x = init.normal(4, 3)
    x[0, 1] = x[1] = 0
    return PolynomialExpansion(3, 2, include_constant=False), (x,)
