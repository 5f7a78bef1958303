"""Fused Triton kernels of some reference layers, and when they are used (extra ``triton``).

By default a layer takes its kernels for CUDA tensors where triton can be imported, and its plain torch path, which
stands beside them, everywhere else. ``CACHELINT_KERNELS`` in the environment, or ``use`` for a block, changes that:

- ``auto``: the default.
- ``on``: CPU tensors too, through Triton's interpreter; ``TRITON_INTERPRET=1`` must be set before triton is imported.
- ``off``: never.

Modules of this package import triton; import them only after ``enabled`` has said yes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import Literal, get_args

import torch
from torch import Tensor

Choice = Literal["auto", "on", "off"]

VARIABLE = "CACHELINT_KERNELS"
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MAX_ROW = 16384
"""The widest row, in elements, that one program holds at once."""

_chosen: ContextVar[Choice | None] = ContextVar("_chosen", default=None)


@contextmanager
def use(choice: Choice) -> Iterator[None]:
    """Within the block, ``choice`` counts in place of the environment's."""
    token = _chosen.set(choice)
    try:
        yield
    finally:
        _chosen.reset(token)


def enabled(*tensors: Tensor | None, row: int = 1) -> bool:
    """Whether a layer takes its kernel for these tensors; ``row`` is what one program must hold at once, in elements.

    Tensors on one device, of a floating dtype, plain (no fake ones and no other subclasses), not empty. Autograd can't
    look into a kernel, so what it records takes the plain path.

    Raises:
        ValueError: ``CACHELINT_KERNELS`` is none of auto, on and off.
        RuntimeError: the kernels were asked for, and triton or its interpreter is missing.
    """
    given = [tensor for tensor in tensors if tensor is not None]
    choice = _choice()
    if choice == "off" or (choice == "auto" and not given[0].is_cuda):
        return False
    if row > MAX_ROW or not all(map(_plain, given)) or len({tensor.device for tensor in given}) > 1:
        return False
    return _ready(given[0].device.type, choice)


def on_device(tensor: Tensor) -> AbstractContextManager[object]:
    """A launch runs on the current device: make it the tensor's."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def _choice() -> Choice:
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    value = os.environ.get(VARIABLE, "auto")
    if value not in get_args(Choice):
        raise ValueError(f"{VARIABLE} must be auto, on or off, not {value!r}")
    return value  # type: ignore[return-value]


def _plain(tensor: Tensor) -> bool:
    recorded = tensor.requires_grad and torch.is_grad_enabled()
    return type(tensor) is Tensor and tensor.dtype in DTYPES and tensor.numel() > 0 and not recorded


def _ready(device: str, choice: Choice) -> bool:
    if device not in ("cuda", "cpu"):
        return False
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if _has_triton() and (device == "cuda" or interpreted):
        return True
    if choice == "on":
        raise RuntimeError(
            f"kernels on {device} were asked for, but "
            + ("TRITON_INTERPRET=1 is not set" if _has_triton() else "triton is not installed (extra: triton)")
        )
    return False


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
