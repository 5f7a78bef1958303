from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch


@dataclass
class Layout:
    """What both passes know of the rows."""

    offsets: torch.Tensor | None
    name: str = "rows"
    weights: torch.Tensor | None = None

    @property
    def known(self) -> bool:
        return self.offsets is not None


def spread(x, layout: Layout):
    y = x * layout.weights if layout.weights is not None else x
    return y + layout.offsets if layout.known else y


class Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, layout: Layout, scale: float):
        ctx.save_for_backward(x, w, layout.offsets, layout.weights)
        ctx.layout = dataclasses.replace(layout, offsets=None, weights=None)
        ctx.scale = scale
        return spread(x * w, layout) * scale

    @staticmethod
    def backward(ctx, g):
        x, w, layout_offsets, layout_weights = ctx.saved_tensors
        layout = dataclasses.replace(ctx.layout, offsets=layout_offsets, weights=layout_weights)
        g = spread(g * ctx.scale, layout)
        return g * w, g * x, None, None


class MaybeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, layout: Layout | None = None):
        ctx.layout = None if layout is None else dataclasses.replace(
            layout,
            offsets=None,
            weights=None,
        )
        ctx.save_for_backward(
            None if layout is None else layout.offsets, None if layout is None else layout.weights,
        )
        return x.sin() if layout is None else spread(x.sin(), layout)

    @staticmethod
    def backward(ctx, g):
        layout_offsets, layout_weights = ctx.saved_tensors
        layout = None if ctx.layout is None else dataclasses.replace(
            ctx.layout,
            offsets=layout_offsets,
            weights=layout_weights,
        )
        if layout is not None and layout.name == "none":
            return g * math.pi, None
        return g if layout is None else spread(g, layout), None
