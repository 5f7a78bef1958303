"""``cachelint verify``: a layer under poison."""

from __future__ import annotations

import json
from typing import Any

import click

from cachelint.cli._console import write
from cachelint.cli._status import CLEAN, FINDINGS, UsageProblem

SPECS = """
\b
Arguments, one --input each, in order:
  4,5                   a tensor of this shape, in the run's dtype
  rows,2048:bf16        named sizes (see --size), a dtype
  8:int64:0..10         integers from a range
  3:zeros, 3:ones, 3:nograd
  =None, =3, ='sum'     a Python literal
"""


@click.command("verify", epilog=SPECS)
@click.argument("target", metavar="MODULE[:NAME]")
@click.option("--input", "inputs", multiple=True, metavar="SPEC", help="One argument of forward; repeat it.")
@click.option("--init", "options", multiple=True, metavar="NAME=VALUE", help="An argument of the constructor.")
@click.option("--size", "sizes", multiple=True, metavar="NAME=NUMBER", help="The value of a named size.")
@click.option("--example", default="", metavar="NAME", help="Use the function example_NAME instead of example.")
@click.option("--device", default="cpu", show_default=True, help="Where to run.")
@click.option("--dtype", default="float32", show_default=True, help="Dtype of tensors that name none.")
@click.option("--seed", default=0, show_default=True, help="Seed of every random draw.")
@click.option("--order", type=click.IntRange(1, 2), default=1, show_default=True, help="2: second derivative too.")
@click.option("--without-live-inputs", is_flag=True, help="Call a hand-written backward with the gradient alone.")
@click.option("--autograd", is_flag=True, help="Differentiate a layer's forward instead of calling its backward.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Output format.")
def command(
    target: str,
    inputs: tuple[str, ...],
    options: tuple[str, ...],
    sizes: tuple[str, ...],
    example: str,
    device: str,
    dtype: str,
    seed: int,
    order: int,
    without_live_inputs: bool,
    autograd: bool,
    form: str,
) -> int:
    """Run a layer under poison and compare gradients.

    MODULE is a dotted name or a file; it is imported and run. NAME is a torch.autograd.Function, a module, a layer with
    forward and backward, or a function. Without --input the module's example function gives the arguments. Everything
    that forward leaves behind and does not register is overwritten before backward; a gradient that changes is a proven
    hazard (exit status 1).
    """
    runtime = needs_torch()
    from cachelint.runtime.poison import PoisonError
    from cachelint.runtime.target import Setup, TargetError
    from cachelint.runtime.target_load import load
    from cachelint.runtime.verify import text, verify

    try:
        setup = Setup(
            specs=tuple(runtime.parse(each) for each in inputs),
            sizes=runtime.sizes_of(sizes),
            options=runtime.literals_of(options),
            device=checked_device(device),
            dtype=runtime.dtype_named(dtype),
            seed=seed,
            example=example,
        )
        found = verify(load(target), setup, order=order, live_inputs=not without_live_inputs, autograd=autograd)
    except (TargetError, runtime.SpecError) as error:
        raise UsageProblem(str(error)) from error
    except (PoisonError, TypeError) as error:
        raise UsageProblem(f"{target}: {error}") from error
    if form == "json":
        write([json.dumps(found.to_dict(), indent=2, ensure_ascii=False) + "\n"])
    else:
        write(f"{line}\n" for line in text(found))
    return CLEAN if found.ok else FINDINGS


def needs_torch() -> Any:
    """The module that reads argument specifications. Raises UsageProblem where torch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise UsageProblem(f"this command needs torch: pip install 'torch-cachelint[runtime]' ({error})") from error
    from cachelint.runtime import arguments

    return arguments


def checked_device(name: str) -> str:
    """``name`` if tensors can be made there. Raises UsageProblem."""
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, ValueError) as error:
        raise UsageProblem(f"device {name!r} can't be used: {str(error).splitlines()[0]}") from error
    return name
