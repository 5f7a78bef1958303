"""How an object's attributes are reached: one walk, shared by parameters, the wiring of savers and the checkers.

The walk opens layers (``Walkable``), dataclass instances, lists, tuples, sets and dicts, each object once, in the order
in which they were set. Anything else is a leaf.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any

from torch import Tensor


class Walkable:
    """An object whose attributes belong to a layer: the common base of ``Node`` and ``SaverAware``."""


def members(value: object, *, closures: bool = False) -> Iterator[tuple[str, object]] | None:
    """The direct members of ``value``, each with the suffix that a path to it ends in; None if ``value`` is a leaf."""
    if isinstance(value, Tensor):
        return None
    if isinstance(value, Walkable) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return ((f".{name}", member) for name, member in _attributes(value))
    if isinstance(value, list | tuple | set | frozenset):
        return ((f"[{index}]", member) for index, member in enumerate(value))
    if isinstance(value, Mapping):
        return ((f"[{key!r}]", member) for key, member in list(value.items()))
    if closures:
        return _captured(value)
    return None


def _attributes(value: object) -> list[tuple[str, object]]:
    found = list(getattr(value, "__dict__", {}).items())
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found.append((name, getattr(value, name)))
    return found


def _captured(value: object) -> Iterator[tuple[str, object]] | None:
    if isinstance(value, FunctionType):
        return _cells(value)
    if isinstance(value, functools.partial):
        return iter([(".func", value.func), (".args", value.args), (".keywords", value.keywords)])
    if isinstance(value, MethodType):
        return iter([("", value.__func__), ("", value.__self__)])
    return None


def _cells(function: FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f".<closure {name}>", cell.cell_contents
        except ValueError:  # the cell is still empty
            continue


def walk(
    root: object, *, closures: bool = False, enter: Callable[[object], bool] = lambda value: True
) -> Iterator[tuple[str, object]]:
    """Every object below ``root`` with its path, depth first, each once. ``enter`` says whether to open an object."""
    seen = {id(root)}
    stack = [_prefixed("", root, closures)]
    while stack:
        step = next(stack[-1], None)
        if step is None:
            stack.pop()
            continue
        path, value = step
        if id(value) in seen and not isinstance(value, str | int | float | bool | None):
            continue
        seen.add(id(value))
        yield path.removeprefix("."), value
        if enter(value):
            stack.append(_prefixed(path, value, closures))


def _prefixed(path: str, value: object, closures: bool) -> Iterator[tuple[str, object]]:
    for suffix, member in members(value, closures=closures) or ():
        yield path + suffix, member


def _is_frozen(value: object) -> bool:
    params: Any = getattr(value, "__dataclass_params__", None)
    return params is not None and bool(params.frozen)


def replace_tensors(root: object, change: Callable[[Tensor], Tensor], seen: set[int] | None = None) -> object:
    """Put ``change(t)`` in the place of every tensor that ``root`` reaches, and give back what stands for ``root``.

    Layers, lists, dicts and dataclasses are changed in place; tuples and frozen dataclasses are rebuilt.
    """
    seen = set() if seen is None else seen
    if isinstance(root, Tensor):
        return change(root)
    if isinstance(root, tuple) and not hasattr(root, "_fields"):
        return tuple(replace_tensors(member, change, seen) for member in root)
    if isinstance(root, tuple):
        make: Any = type(root)  # a named tuple takes its members one by one
        return make(*[replace_tensors(member, change, seen) for member in root])
    if id(root) in seen:
        return root
    seen.add(id(root))
    if isinstance(root, list):
        root[:] = [replace_tensors(member, change, seen) for member in root]
    elif isinstance(root, dict):
        for key, member in root.items():
            root[key] = replace_tensors(member, change, seen)
    elif dataclasses.is_dataclass(root) and _is_frozen(root):
        changed_copy = copy.copy(root)
        for name, member in _attributes(root):
            object.__setattr__(changed_copy, name, replace_tensors(member, change, seen))
        return changed_copy
    elif members(root) is not None and not isinstance(root, set | frozenset):
        for name, member in _attributes(root):
            changed = replace_tensors(member, change, seen)
            if changed is not member:
                setattr(root, name, changed)
    return root
