"""Which check catches which hazard: the fixtures of ``fixtures/hazards`` under every check, as one table.

    python -m cachelint.runtime.hazards [--output FILE]

Each fixture ``hNN_<name>.py`` has ``legacy(seed, device, dtype)``, a layer with one planted fault, and ``fixed``, the
same layer without it; functions ``legacy_<mode>`` and ``fixed_<mode>`` are further modes. ``STATEFUL = True`` says that
a step depends on the one before it; ``prepare(node, step)`` runs before each step. The checks:

- reset: forward under an arena with poison, a reset, backward; one step, and two steps on one instance. The inputs of
  forward are arena memory too, and backward gets copies of them as live inputs, or none.
- two steps: two steps with different inputs on one instance, a reset after each, beside a fresh instance.
- overwrite: the input buffers are overwritten in place before backward. Backward gets these buffers, and its gradients
  must be those of the new values or those of the old ones, not a mixture; or it gets copies of the old values, and its
  gradients must be those of the old ones. Not asked of layers that keep something by contract.
- gradcheck: finite differences in float64, a fresh instance for each evaluation.
- graph: one node in a graph with an arena, a reset between the passes.
- static: ``cachelint check`` on the fixture.

Exits with 1 if a cell is not what the table of hazards promises.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from cachelint.runtime.arena import Arena
from cachelint.runtime.builder import Builder
from cachelint.runtime.harness import (
    ARENA_BYTES,
    Example,
    Outcome,
    as_tuple,
    gradcheck,
    outcome_of,
    overwritten,
    plain,
    run_backward,
    run_forward,
    upstream,
    worst,
)
from cachelint.runtime.hazard_table import HAZARDS, Cells, Hazard
from cachelint.runtime.node import Node
from cachelint.runtime.persistent import Persistent
from cachelint.runtime.saver import NodeSaver, SavedSets, wire
from cachelint.runtime.walk import walk

FOLDER = Path("fixtures/hazards")
TOLERANCE = 1e-9
NOT_APPLICABLE = "–"
CHECKS = ("reset", "two steps", "overwrite", "gradcheck", "graph")
Prepare = Callable[[Node, int], None]


@dataclass(frozen=True, slots=True)
class Specimen:
    """One layer in one mode, with what its fixture says about steps."""

    example: Example
    prepare: Prepare
    stateful: bool


@dataclass(frozen=True, slots=True)
class Row:
    """What every check says of the planted fault and of the layer without it."""

    hazard: Hazard
    legacy: Cells
    fixed: Cells

    @property
    def holds(self) -> bool:
        """Whether the planted fault shows where it was promised, and only there, and the fixed layer is green."""
        cells = zip(self.legacy.dynamic, self.hazard.promise, strict=True)
        promised = all(want is None or got == want for got, want in cells)
        return promised and self.is_reported and self.fixed_is_green

    @property
    def is_reported(self) -> bool:
        """Whether the linter reports the fault, or is silent where there is none."""
        code = self.hazard.code
        return code is None or (code in self.legacy.static if code else not self.legacy.static)

    @property
    def fixed_is_green(self) -> bool:
        """Whether no check and no rule minds the layer without the fault."""
        return set(self.fixed.dynamic) <= {"green", NOT_APPLICABLE} and not self.fixed.static


# ---- the fixtures


def load(hazard: Hazard) -> ModuleType:
    """The fixture of ``hazard``.

    Raises:
        ModuleNotFoundError: the working directory is not the root of a checkout.
    """
    return importlib.import_module(".".join((*FOLDER.parts, hazard.fixture)))


def specimens(module: ModuleType, kind: str) -> Iterator[Specimen]:
    """The modes of the fixture's ``legacy`` or ``fixed`` layer."""
    prepare = getattr(module, "prepare", lambda node, step: None)
    for name, make in vars(module).items():
        if name == kind or name.startswith(f"{kind}_"):
            example = functools.partial(make, device="cpu", dtype=torch.float64)
            yield Specimen(example, prepare, getattr(module, "STATEFUL", False))


# ---- the checks; each says green, red or error, and where


def check_reset(specimen: Specimen) -> str:
    """Reset and poison between forward and backward."""
    first = _judged(lambda: _under_arena(specimen, 1), lambda: _in_plain_memory(specimen, 1))
    if first != "green":
        return first
    second = _judged(lambda: _under_arena(specimen, 2), lambda: _in_plain_memory(specimen, 2))
    if second != "green":
        return f"green, {second} in step 2"
    try:
        want = plain(specimen.example, live=False)
    except Exception:  # a backward that needs its live inputs
        return "green"
    bare = _judged(lambda: _under_arena(specimen, 1, live=False), lambda: want)
    return "green" if bare == "green" else f"green, {bare} without inputs"


def check_two_steps(specimen: Specimen) -> str:
    """Two steps on one instance, a reset after each."""
    want = functools.partial(_in_plain_memory, specimen, 2, fresh=not specimen.stateful)
    return _judged(lambda: _under_arena(specimen, 2, between=False), want)


def check_overwrite(specimen: Specimen) -> str:
    """The input buffers overwritten in place between forward and backward."""
    try:
        trial = overwritten(specimen.example)
        if trial.got.outcome is None:
            return "error"
        errors = [worst(trial.got.outcome, want, outputs=False) for want in (trial.old, trial.new)]
        return "red" if min(errors) > TOLERANCE or _reused_buffer_error(specimen) > TOLERANCE else "green"
    except Exception:  # a layer that can't run its own backward
        return "error"


def check_gradcheck(specimen: Specimen) -> str:
    """Finite differences."""
    try:
        return "green" if gradcheck(specimen.example) else "red"
    except GradcheckError:
        return "red"
    except Exception:  # whatever the layer raises when it is called as the protocol says
        return "error"


def check_graph(specimen: Specimen) -> str:
    """One node in a graph, with its arena reset between the passes."""
    return _judged(lambda: _in_graph(specimen), lambda: _in_plain_memory(specimen, 1))


def dynamic(hazard: Hazard, module: ModuleType, kind: str) -> tuple[str, ...]:
    """The five dynamic cells of a fixture's layer; modes that differ are told apart."""
    checks = (check_reset, check_two_steps, check_overwrite, check_gradcheck, check_graph)
    modes = list(specimens(module, kind))
    return tuple(
        NOT_APPLICABLE
        if check is check_overwrite and hazard.promise[CHECKS.index("overwrite")] is None
        else _joined([check(mode) for mode in modes])
        for check in checks
    )


def _joined(verdicts: list[str]) -> str:
    """The verdict of the first mode, and that of the others where it differs."""
    first, *others = verdicts
    different = [verdict for verdict in others if verdict != first]
    return f"{first} ({different[0]} in the other mode)" if different else first


def _judged(got: Callable[[], Outcome], want: Callable[[], Outcome]) -> str:
    try:
        found = got()
    except Exception:  # a layer on poisoned values may raise anything
        return "error"
    try:
        return "green" if worst(found, want()) <= TOLERANCE else "red"
    except Exception:  # it does not even run in plain memory
        return "error"


class PinsLeft(RuntimeError):
    """A step has ended, and something in the arena is still pinned."""


def _under_arena(specimen: Specimen, steps: int, *, between: bool = True, live: bool = True) -> Outcome:
    node, inputs = specimen.example(0)
    arena = Arena(ARENA_BYTES, poison=True)
    sets = SavedSets()
    wire(node, NodeSaver(sets, "node"))
    try:
        for step in range(steps):
            inputs = specimen.example(step)[1]
            outcome = _arena_step(specimen, node, inputs, step, arena, sets, between, live)
    finally:
        sets.release_all()
        for _, value in walk(node):
            if isinstance(value, Persistent):
                value.invalidate()
    if arena.stats().pins:
        return _nothing_like(outcome)
    return outcome


def _nothing_like(outcome: Outcome) -> Outcome:
    """A pin that is left over fails the trial, whatever the values are."""
    return Outcome(tuple(torch.full_like(y, torch.nan) for y in outcome.outputs), outcome.inputs, outcome.parameters)


def _arena_step(
    specimen: Specimen,
    node: Node,
    inputs: tuple[Tensor, ...],
    step: int,
    arena: Arena,
    sets: SavedSets,
    between: bool,
    live: bool,
) -> Outcome:
    specimen.prepare(node, step)
    node.zero_grad()
    given = tuple(arena.move(tensor) for tensor in inputs)
    with arena.place("allow"):
        result = run_forward(node, given, step)
    outputs = tuple(y.clone() for y in as_tuple(result))
    if between:
        arena.reset(rewind=False)
    with arena.place("allow"):
        grads = run_backward(node, result, upstream(outputs, step), inputs if live else ())
    sets.release_all()
    outcome = outcome_of(node, outputs, grads, inputs)
    arena.reset(rewind=False)
    return outcome


def _in_plain_memory(specimen: Specimen, steps: int, *, fresh: bool = True) -> Outcome:
    """The last of ``steps`` steps; ``fresh`` takes a new instance for it."""
    node, _ = specimen.example(0)
    first = steps - 1 if fresh and not specimen.stateful else 0
    for step in range(first, steps):
        inputs = specimen.example(step)[1]
        specimen.prepare(node, step)
        node.zero_grad()
        result = run_forward(node, inputs, step)
        outputs = as_tuple(result)
        grads = run_backward(node, result, upstream(outputs, step), inputs)
        outcome = outcome_of(node, outputs, grads, inputs)
    return outcome


def _reused_buffer_error(specimen: Specimen) -> float:
    """How far the gradient moves when forward's input buffers get other values and backward copies of the old ones."""
    node, inputs = specimen.example(0)
    _, other = specimen.example(2)  # two seeds on: an input of the same shape, also where steps alternate
    copies = tuple(map(torch.clone, inputs))
    result = run_forward(node, inputs, 0)
    outputs = tuple(y.clone() for y in as_tuple(result))
    for buffer, values in zip(inputs, other, strict=True):
        buffer.copy_(values)
    grads = run_backward(node, result, upstream(outputs, 0), copies)
    return worst(outcome_of(node, outputs, grads, copies), plain(specimen.example), outputs=False)


def _in_graph(specimen: Specimen) -> Outcome:
    node, inputs = specimen.example(0)
    specimen.prepare(node, 0)
    arena = Arena(ARENA_BYTES, poison=True)
    builder = Builder(arena)
    graph = builder.build(builder.add(node, *(builder.input(f"x{index}") for index in range(len(inputs)))))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        output = graph.forward(*inputs)
    outputs = (output.clone(),)
    arena.reset(rewind=False)
    grads = graph.backward(*upstream(outputs, 0))
    outcome = outcome_of(node, outputs, grads, inputs)
    for _, value in walk(node):
        if isinstance(value, Persistent):
            value.invalidate()
    return _nothing_like(outcome) if arena.stats().pins else outcome


# ---- the static column


def findings(folder: Path = FOLDER) -> dict[str, list[dict[str, Any]]]:
    """The findings of ``cachelint check`` in each file of ``folder``, by the file's stem.

    Raises:
        RuntimeError: the check could not read everything; the message is its own.
    """
    command = [sys.executable, "-m", "cachelint", "check", "--isolated", "--no-cache", "--output-format", "json"]
    files = sorted(map(str, folder.glob("h[0-9]*.py")))
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"cachelint check ended with {done.returncode}: {done.stderr.strip()}")
    found: dict[str, list[dict[str, Any]]] = {Path(name).stem: [] for name in files}
    for finding in json.loads(done.stdout)["findings"]:
        found[Path(finding["path"]).stem].append(finding)
    return found


def static(found: list[dict[str, Any]], *, fixed: bool) -> tuple[str, ...]:
    """The codes of the findings in the fixture's fixed types, or in the others."""
    return tuple(sorted({f["code"] for f in found if (f["type"] or "").startswith("Fixed") == fixed}))


# ---- the table


def rows() -> Iterator[Row]:
    """One row for each hazard."""
    found = findings()
    for hazard in HAZARDS:
        module = load(hazard)
        codes = found[hazard.fixture]
        yield Row(
            hazard,
            Cells(dynamic(hazard, module, "legacy"), static(codes, fixed=False)),
            Cells(dynamic(hazard, module, "fixed"), static(codes, fixed=True)),
        )


def markdown(found: list[Row]) -> str:
    """The page: what the checks are, the table, and why a cell is not what one might expect."""
    heads = ("", "Hazard", *CHECKS, "static", "without the fault")
    lines = [
        "# Hazards and the checks that catch them",
        "",
        "Generated by `python -m cachelint.runtime.hazards`, which says what each check does. Each row is a fixture in",
        "`fixtures/hazards`: a layer with one planted fault, and the same layer without it. A check is *red* where it",
        "catches the fault by a wrong value, and *error* where the layer or the graph raises. A dash says that the check",
        "does not apply. *Static* names the rules that report something.",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + " --- |" * len(heads),
    ]
    lines += [f"| {' | '.join(_cells(row))} |" for row in found]
    notes = [f"- {row.hazard.id}: {row.hazard.note}" for row in found if row.hazard.note]
    return "\n".join([*lines, "", "## Notes", "", *notes, ""])


def _cells(row: Row) -> tuple[str, ...]:
    hazard = row.hazard
    clean = "green" if row.fixed_is_green else "; ".join((*dict.fromkeys(row.fixed.dynamic), *row.fixed.static))
    link = f"[{hazard.pattern}](../{FOLDER.as_posix()}/{hazard.fixture}.py)"
    return (hazard.id, link, *row.legacy.dynamic, ", ".join(row.legacy.static) or "silent", clean)


def main(arguments: list[str] | None = None) -> int:
    """Print or write the page; 1 if a cell is not what is promised."""
    parser = argparse.ArgumentParser(
        prog="python -m cachelint.runtime.hazards", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("-o", "--output", type=Path, help="write the page there")
    options = parser.parse_args(arguments)
    found = list(rows())
    page = markdown(found)
    if options.output:
        options.output.write_text(page, encoding="utf-8")
    else:
        print(page)
    wrong = [row.hazard.id for row in found if not row.holds]
    print(f"{len(found)} hazards, {len(wrong)} not as promised", *wrong, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
