"""Storages: what memory a tensor stands on, and how large the allocator makes it.

A storage is counted once, however many views share it. Tensors that are built of other tensors (sparse layouts,
wrapper subclasses) stand on the storages of their parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

BLOCK = 512
"""Bytes: the CUDA caching allocator rounds every request up to a multiple of this (``kMinBlockSize``)."""


def rounded(nbytes: int) -> int:
    """``nbytes`` rounded up to whole blocks of 512 bytes; an empty storage takes none."""
    return -(-nbytes // BLOCK) * BLOCK


def tensors_in(value: object) -> Iterator[Tensor]:
    """The tensors of an operator's arguments or results: ``value`` itself, or what lists, tuples and dicts hold."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for member in value:
            yield from tensors_in(member)
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from tensors_in(member)


def parts(tensor: Tensor) -> Iterator[Tensor]:
    """The dense tensors that ``tensor`` is built of: itself, or the parts of a sparse tensor or a wrapper subclass."""
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        for name in names:
            yield from parts(getattr(tensor, name))
    elif tensor.layout is torch.strided:
        yield tensor
    elif tensor.layout is torch.sparse_coo:
        yield tensor._indices()
        yield tensor._values()
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield from (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield from (tensor.ccol_indices(), tensor.row_indices(), tensor.values())


def storages_of(tensor: Tensor) -> Iterator[tuple[torch.UntypedStorage, Tensor]]:
    """Each storage below ``tensor`` with the dense tensor that shows it. A tensor without storage gives nothing."""
    for part in parts(tensor):
        try:
            yield part.untyped_storage(), part
        except (NotImplementedError, RuntimeError):  # opaque layouts, such as mkldnn, own memory that torch can't name
            continue


def size_of(storage: torch.UntypedStorage) -> int:
    """The exact bytes of ``storage``. A symbolic size is taken at its hint."""
    size: Any = storage.nbytes()
    return size if type(size) is int else int(getattr(size.node, "hint", size))


def key_of(storage: torch.UntypedStorage) -> int:
    """A number that no other live storage has."""
    return int(storage._cdata)
