"""A table of vectors, looked up by token number."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cachelint.runtime import Node, Parameter
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.numerics import rows, wide


class TokenEmbedding(Node):
    """``y = scale * table[ids]``: ids int64 of any shape ``[...]``, table ``[tokens, width]``, y ``[..., width]``.

    The row ``padding`` starts as zeros and gets no gradient. Half precision sums the rows' gradients in float32.
    """

    def __init__(
        self,
        tokens: int,
        width: int,
        *,
        padding: int | None = None,
        scale: float = 1.0,
        init: Init | None = None,
    ) -> None:
        init = init or Init()
        table = init.normal(tokens, width)
        if padding is not None:
            table[padding] = 0.0
        self.table = Parameter(table, "table")
        self.padding = padding
        self.scale = scale

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors of the tokens."""
        vectors = F.embedding(ids, self.table.value)
        return vectors if self.scale == 1.0 else vectors * self.scale

    def backward(self, grad: Tensor, ids: Tensor) -> tuple[None]:
        """Add each vector's gradient to its row of the table. Token numbers have no gradient."""
        index = ids.reshape(-1)
        vectors = rows(wide(grad))
        if self.scale != 1.0:
            vectors = vectors * self.scale
        if self.padding is not None:
            vectors = vectors * (index != self.padding).unsqueeze(-1)
        total = vectors.new_zeros(self.table.value.shape).index_add(0, index, vectors)
        self.table.accumulate(total)
        return (None,)


def reference(node: TokenEmbedding, ids: Tensor) -> Tensor:
    """Return the same lookup in plain torch operators."""
    return node.scale * F.embedding(ids, node.table.value, padding_idx=node.padding)


def example(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[TokenEmbedding, tuple[Tensor]]:
    """Return a node and token numbers for it, one of them twice."""
    init = Init.seeded(seed, device, dtype)
    ids = torch.randint(7, (2, 3), generator=init.generator)
    ids[0, 0] = ids[1, 2]
    return TokenEmbedding(7, 4, init=init), (ids.to(device),)


def example_padding(
    seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> tuple[TokenEmbedding, tuple[Tensor, ...]]:
    """Return a node with a padding row and a scale, and token numbers for it."""
    init = Init.seeded(seed, device, dtype)
    ids = torch.randint(5, (11,), generator=init.generator)
    ids[3] = 2
    return TokenEmbedding(5, 3, padding=2, scale=3.0, init=init), (ids.to(device),)
