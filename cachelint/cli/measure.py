"""``cachelint measure``: peak allocated bytes of two versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cachelint.cli._console import tell, write
from cachelint.cli._status import CLEAN, FINDINGS, UsageProblem
from cachelint.cli.verify import SPECS, checked_device, needs_torch

if TYPE_CHECKING:
    from cachelint.runtime.measure import Measurement, Owners, Plan
    from cachelint.runtime.target import Target


@click.command("measure", epilog=SPECS)
@click.argument("before", metavar="MODULE[:NAME]")
@click.argument("after", metavar="[AFTER]", required=False)
@click.option("--fix", is_flag=True, help="The second version is the first with the lifetime fix, applied in memory.")
@click.option("--fixer", metavar="MODULE:FUNCTION", help="Fix with this function (source, path) -> source instead.")
@click.option("--input", "inputs", multiple=True, metavar="SPEC", help="One argument; repeat it.")
@click.option("--init", "options", multiple=True, metavar="NAME=VALUE", help="An argument of the constructor.")
@click.option("--size", "sizes", multiple=True, metavar="NAME=NUMBER", help="The value of a named size.")
@click.option("--example", default="", metavar="NAME", help="Use the function example_NAME instead of example.")
@click.option("--device", default="meta", show_default=True, help="Where to measure the peak: meta, cpu or cuda.")
@click.option("--dtype", default="float32", show_default=True, help="Dtype of tensors that name none.")
@click.option("--seed", default=0, show_default=True, help="Seed of every random draw.")
@click.option(
    "--mode",
    type=click.Choice(["forward", "gradient", "backward"]),
    default="backward",
    show_default=True,
    help="Measure forward alone, forward under autograd, or both passes.",
)
@click.option("--autograd", is_flag=True, help="Differentiate a layer's forward instead of calling its backward.")
@click.option("--pairs", type=click.IntRange(1, 1000), default=12, show_default=True, help="Pairs of trials.")
@click.option("--runs", type=click.IntRange(0, 100), default=3, show_default=True, help="Runs that are compared.")
@click.option("--compare-size", "small", multiple=True, metavar="NAME=NUMBER", help="A named size in those runs.")
@click.option("--compare-device", default="", help="Where to compare; by default the CPU, or --device if that is CUDA.")
@click.option("--owners", multiple=True, metavar="FUNCTION:NAME,NAME", help="Look for these locals at the peak.")
@click.option(
    "--scope",
    type=click.Choice(["auto", "component", "model"]),
    default="auto",
    show_default=True,
    help="What is measured; auto takes what contains the flagged code without being it for a model.",
)
@click.option("--plot", type=click.Path(path_type=Path), help="Draw live bytes over the operators: FILE.svg or .png.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", help="Output format.")
@click.option("--timeline", is_flag=True, help="Put every operator call into the JSON.")
def command(before: str, after: str | None, fix: bool, fixer: str | None, **options: Any) -> int:
    """Measure the peak of two versions, and what is alive there.

    MODULE is a dotted name or a file; it is imported and run. NAME is a function, a module or a layer; a class is
    constructed. Without --input the module's example function gives the arguments. The peak is counted on any device,
    meta included, so no GPU is needed; on CUDA the device's own counters stand beside it. Exit status 1: the versions
    start from different allocations, or do not give the same numbers.
    """
    if after is not None and (fix or fixer):
        raise UsageProblem("give a second version, or --fix, not both")
    needs_torch()
    from cachelint.runtime.arguments import SpecError
    from cachelint.runtime.measure import MeasureError
    from cachelint.runtime.measure_plot import save
    from cachelint.runtime.measure_text import text, to_dict
    from cachelint.runtime.target import TargetError

    try:
        found = _measured(before, after, fix, fixer, options)
        if options["plot"] is not None:
            save(found, options["plot"])
    except (TargetError, SpecError, MeasureError) as error:
        raise UsageProblem(str(error)) from error
    if options["form"] == "json":
        write([json.dumps(to_dict(found, options["timeline"]), indent=2, ensure_ascii=False) + "\n"])
    else:
        write(f"{line}\n" for line in text(found))
    if options["plot"] is not None:
        tell(f"plot: {options['plot']}")
    return CLEAN if found.ok else FINDINGS


def _measured(before: str, after: str | None, fix: bool, fixer: str | None, options: dict[str, Any]) -> Measurement:
    from cachelint.runtime import measure_fix
    from cachelint.runtime.measure import measure
    from cachelint.runtime.target_load import load

    plan = _plan(options)
    old = load(before)
    value, _ = old.ready(plan.setup)
    files = measure_fix.files_of(old, value)
    named = tuple(measure_fix.owners_named(each) for each in options["owners"])
    owners = named or measure_fix.flagged(files)
    new = load(after) if after is not None else None
    if fix or fixer:
        chosen = measure_fix.fixer_named(fixer) if fixer else measure_fix.shipped_fixer()
        new = measure_fix.fixed(old, files, chosen)
    scope = options["scope"] if options["scope"] != "auto" else _scope(old, value, owners)
    return measure(old, new, plan, owners, scope)


def _plan(options: dict[str, Any]) -> Plan:
    from dataclasses import replace

    from cachelint.runtime.arguments import dtype_named, literals_of, parse, sizes_of
    from cachelint.runtime.measure import Plan
    from cachelint.runtime.target import Setup

    setup = Setup(
        specs=tuple(parse(each) for each in options["inputs"]),
        sizes=sizes_of(options["sizes"]),
        options=literals_of(options["options"]),
        device=checked_device(options["device"]),
        dtype=dtype_named(options["dtype"]),
        seed=options["seed"],
        example=options["example"],
    )
    where = options["compare_device"] or ("cpu" if setup.device == "meta" else setup.device)
    small = replace(setup, device=checked_device(where), sizes={**setup.sizes, **sizes_of(options["small"])})
    return Plan(setup, small, options["mode"], options["autograd"], options["pairs"], options["runs"])


def _scope(target: Target, value: object, owners: tuple[Owners, ...]) -> str:
    """A model, if what is flagged is not the target's own code but that of something it contains."""
    own = {getattr(value, "__qualname__", ""), *(kind.__qualname__ for kind in type(value).__mro__)}
    if not owners or any(o.function in own or o.function.rpartition(".")[0] in own for o in owners):
        return "component"
    return "model"
