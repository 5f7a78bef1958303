"""Who holds a storage between forward and backward: attributes of the receiver, with their paths.

Receivers are the layer or module itself, whatever a function has captured, and the ``ctx`` of every custom Function on
the autograd graph of the outputs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from cachelint.runtime.persistent import Persistent
from cachelint.runtime.storages import key_of, storages_of

LIMIT = 200_000
"""How many objects one walk opens before it gives up looking further."""

_CLOSED = (
    str,
    bytes,
    int,
    float,
    complex,
    type(None),
    type,
    ModuleType,
    BuiltinFunctionType,
    torch.dtype,
    torch.device,
)


def reach(root: object, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor below ``root`` with its path, such as ``self.blocks[0].cache``, each once."""
    return ((path, value) for path, value in objects(root, name) if isinstance(value, Tensor))


def persistent(receivers: Mapping[str, object]) -> Iterator[Tensor]:
    """What the receivers keep in ``Persistent``: under the contract until it is invalidated."""
    for receiver in receivers.values():
        for _, value in objects(receiver):
            if isinstance(value, Persistent):
                yield from (tensor for _, tensor in reach(value))


def objects(root: object, name: str = "") -> Iterator[tuple[str, object]]:
    """``root`` and every object below it with its path; each object is opened once, plain values and classes never."""
    seen: set[int] = set()
    pending: list[tuple[str, object]] = [(name, root)]
    while pending and len(seen) < LIMIT:
        path, value = pending.pop()
        if isinstance(value, _CLOSED) or id(value) in seen:
            continue
        seen.add(id(value))
        yield path, value
        if isinstance(value, Tensor):
            if value.is_leaf and value.grad is not None:
                pending.append((f"{path}.grad", value.grad))
            continue
        pending.extend(reversed([(_join(path, step), member) for step, member in _members(value)]))


def _join(path: str, step: str) -> str:
    return path + step if path else step.removeprefix(".")


def _members(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", member) for key, member in list(value.items()))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{index}]", member) for index, member in enumerate(value))
    elif isinstance(value, FunctionType):
        for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            try:
                yield f".<closure {variable}>", cell.cell_contents
            except ValueError:  # still empty
                continue
    elif isinstance(value, MethodType):
        yield "", value.__self__
        yield "", value.__func__
    elif isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    else:
        yield from _attributes(value)


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    fields: dict[str, Any] = dict(getattr(value, "__dict__", {}))
    for registry in ("_parameters", "_buffers", "_modules"):  # torch.nn.Module: their names are the attribute's own
        if isinstance(value, torch.nn.Module):
            for name, member in fields.pop(registry, {}).items():
                yield f".{name}", member
    for name, member in fields.items():
        yield f".{name}", member
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield f".{name}", getattr(value, name)


def graph_nodes(outputs: Iterable[Tensor]) -> Iterator[Any]:
    """Every autograd node below ``outputs``, each once."""
    pending = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen: set[Any] = set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        pending.extend(below for below, _ in node.next_functions if below is not None)


def leaves_of(outputs: Iterable[Tensor]) -> list[Tensor]:
    """The leaf tensors that the graph of ``outputs`` accumulates gradients into."""
    return [node.variable for node in graph_nodes(outputs) if hasattr(node, "variable")]


def contexts(outputs: Iterable[Tensor]) -> Iterator[tuple[str, Any]]:
    """The ctx of every custom Function on the graph, named after the Function."""
    for node in graph_nodes(outputs):
        if isinstance(node, BackwardCFunction):
            yield type(node).__name__.removesuffix("Backward"), node


def holders(receivers: Mapping[str, object], outputs: Iterable[Tensor]) -> dict[int, str]:
    """For each storage that a ctx or a receiver reaches, the first path to it; a ctx goes before a receiver."""
    found: dict[int, str] = {}
    fields = [(f"{name}: ctx.{field}", v) for name, node in contexts(outputs) for field, v in vars(node).items()]
    named = [entry for path, value in [*fields, *receivers.items()] for entry in reach(value, path)]
    for path, tensor in named:
        for storage, _ in storages_of(tensor):
            found.setdefault(key_of(storage), path)
    return found
