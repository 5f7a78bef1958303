"""The table of errors: each reference layer, in each mode, against autograd of the same formula.

    python -m cachelint.runtime.layers.table [--device DEVICE] [--seeds N] [NAME...]

For each layer module ``<package>/<type>.py`` and each of its functions ``example`` and ``example_<mode>``, the node
runs one forward and one backward in each dtype. Outputs, input gradients and parameter gradients are compared with
those that autograd finds through the module's ``reference`` in float64, on the same (rounded) inputs and parameters.
A number is the largest ‖got - want‖ / ‖want‖ over all of them and over all seeds. Exits with 1 if one exceeds its
tolerance.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cachelint.runtime import Node, layers
from cachelint.runtime.harness import Difference, by_autograd, compare, plain

TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2}
"""What an error may be at most. One rounding to bfloat16 is 2^-9, about 0.002; a composite rounds at every product."""

MakeExample = Callable[..., tuple[Node, tuple[Tensor, ...]]]


@dataclass(frozen=True)
class Mode:
    """One layer in one mode. ``name`` is ``package.Type`` or ``package.Type (mode)``."""

    name: str
    package: str
    make: MakeExample
    reference: Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """The largest error of one mode in each dtype, in the order of ``TOLERANCES``."""

    name: str
    errors: tuple[float, ...]

    @property
    def passes(self) -> bool:
        """Whether every error is within its tolerance."""
        return all(error <= tolerance for error, tolerance in zip(self.errors, TOLERANCES.values(), strict=True))


def modes(packages: Sequence[str] = ()) -> Iterator[Mode]:
    """Every mode of every layer, by package, module and mode; of these packages only, if any are named."""
    for found in pkgutil.walk_packages(layers.__path__, f"{layers.__name__}."):
        package = found.name.split(".")[-2]
        if found.ispkg or found.name.count(".") < 4 or package == "kernels" or (packages and package not in packages):
            continue
        module = importlib.import_module(found.name)
        names = sorted(name for name in vars(module) if name == "example" or name.startswith("example_"))
        for name in names:
            make = getattr(module, name)
            kind = type(make()[0]).__name__
            mode = name.removeprefix("example").strip("_").replace("_", " ")
            yield Mode(f"{package}.{kind} ({mode})" if mode else f"{package}.{kind}", package, make, module.reference)


def differences(mode: Mode, dtype: torch.dtype, seed: int = 0, device: str = "cpu") -> tuple[Difference, ...]:
    """One forward and backward in ``dtype`` beside the reference in float64, the largest difference first."""

    def widened(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        node, inputs = mode.make(seed, device, dtype)
        node.to(dtype=torch.float64)
        return node, tuple(x.to(torch.float64) if x.is_floating_point() else x for x in inputs)

    def rounded(node: Node, *inputs: Tensor) -> Any:
        # Rounding the outputs makes the upstream gradients the same numbers in both.
        result = mode.reference(node, *inputs)
        return tuple(y.to(dtype) for y in result) if isinstance(result, tuple) else result.to(dtype)

    got = plain(partial(mode.make, device=device, dtype=dtype), seed)
    return compare(got, by_autograd(widened, rounded, seed))


def rows(chosen: Iterable[Mode], *, seeds: Iterable[int] = range(3), device: str = "cpu") -> Iterator[Row]:
    """One row for each mode."""
    for mode in chosen:
        worst = (max(differences(mode, dtype, seed, device)[0].error for seed in seeds) for dtype in TOLERANCES)
        yield Row(mode.name, tuple(worst))


def markdown(found: Iterable[Row]) -> str:
    """The rows as a Markdown table."""
    heads = [
        f"{str(dtype).removeprefix('torch.')} (at most {tolerance:.0e})" for dtype, tolerance in TOLERANCES.items()
    ]
    lines = ["| Layer | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(heads)]
    lines += ["| " + " | ".join([row.name, *(f"{error:.1e}" for error in row.errors)]) + " |" for row in found]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 if an error exceeds its tolerance, 2 if a name fits no layer."""
    summary = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m cachelint.runtime.layers.table", description=summary)
    parser.add_argument("names", nargs="*", help="show only layers whose name contains one of these")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds to run (default: 3)")
    options = parser.parse_args(arguments)
    chosen = [m for m in modes() if not options.names or any(n.lower() in m.name.lower() for n in options.names)]
    if not chosen:
        print(f"no layer is named {' or '.join(options.names)}", file=sys.stderr)
        return 2
    found = list(rows(chosen, seeds=range(options.seeds), device=options.device))
    print(markdown(found))
    failed = [row.name for row in found if not row.passes]
    print(f"{len(found)} modes, {len(failed)} beyond tolerance", *failed, sep="\n  ", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
