"""Whose attribute holds memory that a reset has taken back."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from cachelint.runtime.errors import UseAfterReset
from cachelint.runtime.span import Span, span_of
from cachelint.runtime.walk import walk


@dataclass(frozen=True, slots=True)
class StaleField:
    """A field that still holds dead memory; ``path`` such as ``inner.weights`` or ``outs[2]``."""

    path: str
    tensor: Tensor
    span: Span


def stale_fields(root: object) -> tuple[StaleField, ...]:
    """Every tensor that ``root`` reaches, closures included, whose memory a reset has taken back."""
    found = []
    for path, value in walk(root, closures=True):
        span = span_of(value) if isinstance(value, Tensor) else None
        if span is not None and not span.alive and isinstance(value, Tensor):
            found.append(StaleField(path, value, span))
    return tuple(found)


def located(error: UseAfterReset, name: str, root: object, inputs: tuple[object, ...] = ()) -> UseAfterReset:
    """``error`` with the node's ``name`` and the field of ``root`` that holds the dead memory, or which live input."""
    if error.node:
        return error
    field = next((stale.path for stale in stale_fields(root) if stale.span is error.span), "")
    if not field:
        spans = [span_of(value) if isinstance(value, Tensor) else None for value in inputs]
        field = next((f"input {i}" for i, span in enumerate(spans) if span is not None and span is error.span), "")
    holder = f"{type(root).__name__}.{field}" if field and not field.startswith("input") else field
    message = f"node {name}: {holder or 'a tensor that no attribute holds'} is used after a reset: {error}"
    if holder:
        message += "; register it with save_for_backward, or derive it from the live inputs"
    return UseAfterReset(message, error.span, name, field)
