"""Arguments of a run from short specifications, such as ``4,5``, ``rows,2048:bfloat16`` or ``8:int64:0..10``.

    SIZE[,SIZE...][:DTYPE][:OPTION...]    a tensor; SIZE is a number or a named size; () is a single number
    =VALUE                                a Python literal: =3, =None, ='sum', =(1, 2)

    LOW..HIGH   integers from LOW up to and without HIGH (default 0..2), or floating-point values between the two
    zeros, ones                           that value everywhere
    nograd                                no gradient is wanted of it

Floating-point values are drawn from a normal distribution, in float64 on the CPU, then rounded and moved: one seed
gives the same numbers on every device.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ALIASES = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "fp16": torch.float16,
    "f32": torch.float32,
    "fp32": torch.float32,
    "f64": torch.float64,
    "fp64": torch.float64,
}
_RANGE = re.compile(r"(?P<low>-?[\d.]+?)\.\.(?P<high>-?[\d.]+)\Z")


class SpecError(ValueError):
    """A specification can't be read; the message is one line that says what and what to do."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor argument. ``sizes`` are numbers or names; ``dtype`` None is the run's; ``low`` None is no range."""

    sizes: tuple[int | str, ...]
    dtype: torch.dtype | None = None
    low: float | None = None
    high: float | None = None
    fill: float | None = None
    gradient: bool = True


@dataclass(frozen=True, slots=True)
class Literal:
    """One argument that is no tensor."""

    value: Any


Spec = TensorSpec | Literal


def dtype_named(name: str) -> torch.dtype:
    """``float32``, ``torch.float32`` or ``fp32``. Raises SpecError for any other name."""
    plain = name.removeprefix("torch.")
    found = ALIASES.get(plain, getattr(torch, plain, None))
    if not isinstance(found, torch.dtype):
        raise SpecError(f"{name!r} is no dtype; give one such as float32, bf16 or int64")
    return found


def parse(text: str) -> Spec:
    """Read one specification. Raises SpecError."""
    if text.startswith("="):
        try:
            return Literal(ast.literal_eval(text[1:].strip()))
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise SpecError(f"{text!r}: what follows = is no Python literal, such as =3, =None or ='sum'") from error
    shape, *options = (part.strip() for part in text.split(":"))
    found: dict[str, Any] = {"sizes": _sizes(shape, text)}
    for option in options:
        found.update(_option(option, text))
    return TensorSpec(**found)


def _sizes(shape: str, text: str) -> tuple[int | str, ...]:
    if shape == "()":
        return ()
    sizes: list[int | str] = []
    for part in (each.strip() for each in shape.split(",")):
        if part.isascii() and part.isdecimal():
            sizes.append(int(part))
        elif part.isidentifier():
            sizes.append(part)
        else:
            raise SpecError(f"{text!r}: {part!r} is no size; give sizes such as 4,5 or rows,2048, or () for one number")
    return tuple(sizes)


def _option(option: str, text: str) -> dict[str, Any]:
    if option == "nograd":
        return {"gradient": False}
    if option in ("zeros", "ones"):
        return {"fill": float(option == "ones")}
    span = _RANGE.match(option)
    try:
        if span is not None:
            low, high = float(span["low"]), float(span["high"])
            if low < high:
                return {"low": low, "high": high}
            raise SpecError(f"{text!r}: the range {option} is empty")
        return {"dtype": dtype_named(option)}
    except SpecError:
        raise
    except ValueError as error:
        raise SpecError(f"{text!r}: {option!r} is no range such as 0..10") from error


def sizes_of(pairs: Sequence[str]) -> dict[str, int]:
    """``["rows=64902"]`` as a mapping. Raises SpecError."""
    found = {}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not (equals and name.isidentifier() and value.isascii() and value.isdecimal()):
            raise SpecError(f"{pair!r} is no named size; give it as rows=64902")
        found[name] = int(value)
    return found


def literals_of(pairs: Sequence[str]) -> dict[str, Any]:
    """``["eps=1e-5", "bias=False"]`` as keyword arguments. Raises SpecError."""
    found = {}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not (equals and name.isidentifier()):
            raise SpecError(f"{pair!r} is no argument; give it as name=value")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise SpecError(f"{pair!r}: {value!r} is no Python literal; quote strings: name='value'") from error
    return found


def make(
    specs: Sequence[Spec], *, sizes: Mapping[str, int], device: str, dtype: torch.dtype, seed: int
) -> tuple[Any, ...]:
    """The arguments themselves. Raises SpecError where a named size is missing."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        spec.value if isinstance(spec, Literal) else _tensor(spec, sizes, device, dtype, generator) for spec in specs
    )


def _tensor(
    spec: TensorSpec, sizes: Mapping[str, int], device: str, dtype: torch.dtype, generator: torch.Generator
) -> Tensor:
    missing = [size for size in spec.sizes if isinstance(size, str) and size not in sizes]
    if missing:
        raise SpecError(f"the size {missing[0]!r} has no value; give it with --size {missing[0]}=NUMBER")
    shape = [sizes[size] if isinstance(size, str) else size for size in spec.sizes]
    kind = spec.dtype or dtype
    real = kind.is_floating_point or kind.is_complex
    if torch.device(device).type == "meta":
        made = torch.empty(shape, dtype=kind, device=device)
    else:
        made = _drawn(spec, shape, real, generator).to(device=device, dtype=kind)
    return made.requires_grad_(real and spec.gradient)


def _drawn(spec: TensorSpec, shape: list[int], real: bool, generator: torch.Generator) -> Tensor:
    if spec.fill is not None:
        return torch.full(shape, spec.fill, dtype=torch.float64)
    if not real:
        low, high = (0, 2) if spec.low is None or spec.high is None else (int(spec.low), int(spec.high))
        return torch.randint(low, high, shape, generator=generator)
    if spec.low is not None and spec.high is not None:
        return torch.rand(shape, generator=generator, dtype=torch.float64) * (spec.high - spec.low) + spec.low
    return torch.randn(shape, generator=generator, dtype=torch.float64)
