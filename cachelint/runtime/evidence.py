"""Static equals dynamic: the table of what the audit says of each cached field and what poison shows of it.

    python -m cachelint.runtime.evidence [--audit AUDIT.json] [--json] [PATH...]

For every file ``<package>/<type>.py`` below the paths (by default ``fixtures/legacy``) that has a module-level
``example(seed, device, dtype) -> (node, inputs)``, each field that the audit lists for the node's type, and each
attribute that forward was seen to assign, is poisoned on its own between forward and backward. Further examples of a
type, for other modes, are module-level functions whose names start with ``example_``. A field under the contract
(registered, or derived from live inputs) is proved by a run under an arena that is reset between forward and backward.

Exits with 1 when a verdict and its proof disagree, or when a file has no example.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from cachelint.runtime.harness import Example, plain, recorded, two_steps, under_reset, worst
from cachelint.runtime.persistent import Persistent
from cachelint.runtime.proof import TOLERANCE, Effect, FieldProof, prove, registered_fields, written_fields
from cachelint.runtime.walk import walk

DEFAULT_PATHS = ("fixtures/legacy",)
RESET_PROOF = "unchanged under reset and poison"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the audit says of one field; ``cls`` is SAFE, RECOMPUTE or SAVE."""

    field: str
    cls: str
    read: bool = True
    registered: bool = False

    @property
    def flagged(self) -> bool:
        """A finding: RECOMPUTE or SAVE, read in backward and not registered."""
        return self.cls != "SAFE" and self.read and not self.registered


@dataclass(frozen=True, slots=True)
class TypeVerdict:
    """What the audit says of one type: its row (the Class column) and its fields."""

    row: str = "SAFE"
    fields: tuple[Verdict, ...] = ()


Known = dict[tuple[str, str], TypeVerdict]


@dataclass(frozen=True, slots=True)
class Row:
    """One field of one type: the audit's class beside the dynamic proof. ``field`` is empty for the type as a whole."""

    type: str
    field: str
    static: str
    dynamic: str
    agrees: bool


@dataclass(frozen=True, slots=True)
class Specimen:
    """A layer that can be run: its name as ``package.Type`` and one example per mode."""

    name: str
    path: Path
    examples: tuple[Example, ...]


# ---- what to run


def specimens(paths: Iterable[Path], device: str = "cpu", dtype: torch.dtype = torch.float64) -> Iterator[Specimen]:
    """Every module below ``paths`` that has an ``example``, in the order of their paths.

    Raises:
        ImportError: a file can't be imported.
    """
    for root in paths:
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            if path.name.startswith("_") or b"def example" not in path.read_bytes():
                continue  # not a layer: don't import what it may need
            module = load(path)
            examples = tuple(functools.partial(make, device=device, dtype=dtype) for make in _example_functions(module))
            if examples:
                node, _ = examples[0](0)
                yield Specimen(f"{path.parent.name}.{type(node).__name__}", path, examples)


def load(path: Path) -> ModuleType:
    """The module at ``path``: under its dotted name where that can be imported from here, else by its path.

    Raises:
        ImportError: the file can't be imported.
    """
    if not path.is_absolute() and ".." not in path.parts:
        name = ".".join(path.with_suffix("").parts)
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise  # something that the module itself imports
    spec = importlib.util.spec_from_file_location(f"_evidence_{path.parent.name}_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path}: not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _example_functions(module: ModuleType) -> list[Callable[..., Any]]:
    names = [n for n in vars(module) if n == "example" or n.startswith("example_")]
    return [getattr(module, name) for name in sorted(names, key=lambda name: (name != "example", name))]


# ---- what the audit says


def audit(paths: Iterable[Path]) -> Any:
    """The JSON report of ``cachelint audit`` on ``paths``.

    Raises:
        RuntimeError: the audit could not read everything; the message is its own.
    """
    command = [sys.executable, "-m", "cachelint", "audit", "--format", "json", "--no-cache", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"cachelint audit ended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def verdicts(report: Any) -> Known:
    """The verdicts of a JSON report, by path and type."""
    return {
        (Path(kind["path"]).as_posix(), kind["type"]): TypeVerdict(
            kind["class"], tuple(Verdict(f["field"], f["class"], f["read"], f["registered"]) for f in kind["fields"])
        )
        for kind in report["types"]
    }


# ---- the table


def rows(specimen: Specimen, known: Known, seed: int = 0) -> Iterator[Row]:
    """The rows of one layer: its fields by name, then the layer as a whole unless a field of its own needs work."""
    node, _ = specimen.examples[0](seed)
    kind = _verdict_of(type(node), specimen.path, known)
    static = {v.field: v for v in kind.fields if not v.registered}
    seen = dict.fromkeys(name for example in specimen.examples for name in written_fields(example, seed))
    covered = {_attribute(v.field) for v in kind.fields if v.registered}
    handed_over = registered_fields(specimen.examples, seed)
    for name in dict.fromkeys([*static, *seen]):
        verdict = static.get(name)
        if name in handed_over and verdict is not None and verdict.flagged:
            yield Row(specimen.name, name, f"{verdict.cls}, not registered", "is registered", False)
        if name in covered | handed_over:
            continue
        proof = prove(specimen.examples, name, seed)
        if verdict is None and agrees(None, proof):
            continue
        yield Row(specimen.name, name, _label(verdict), _shown(proof), agrees(verdict, proof))
    if not any(v.flagged for v in static.values()):
        yield _whole(specimen, kind, seed)


def _attribute(field: str) -> str:
    return field.removeprefix("self.").split(".")[0].split("[")[0]


def _verdict_of(kind: type, path: Path, known: Known) -> TypeVerdict:
    found = [known[key] for base in kind.__mro__ if (key := (path.as_posix(), base.__qualname__)) in known]
    return found[0] if found else TypeVerdict()


def _label(verdict: Verdict | None) -> str:
    if verdict is None:
        return "not listed"
    return verdict.cls if verdict.read else f"{verdict.cls}, never read"


def _shown(proof: FieldProof) -> str:
    if proof.effect in (Effect.CORRUPTS, Effect.WITHOUT_INPUTS, Effect.NEXT_STEP):
        size = "NaN or error" if proof.error == float("inf") else f"by {proof.error:.1e}"
        return f"{proof.effect} ({size})"
    return str(proof.effect)


def agrees(verdict: Verdict | None, proof: FieldProof) -> bool:
    """Whether the proof is what the verdict promises.

    RECOMPUTE and SAVE are proved by a changed gradient, in this step or the next, with live inputs or without, or by a
    read of the shape alone; a SAFE field and an unlisted one by no change. A field that no backward reads changes no
    gradient of this step; state that the next forward reads may still change the next one.
    """
    harmless = proof.effect in (Effect.NOTHING, Effect.HOST, Effect.HANDLE)
    if verdict is not None and not verdict.read:
        return harmless or proof.effect is Effect.NEXT_STEP
    if verdict is None or verdict.cls == "SAFE":
        return harmless
    return not harmless


def _whole(specimen: Specimen, kind: TypeVerdict, seed: int) -> Row:
    """The layer with its saver: unchanged under reset. Where children save: changed without a saver, too.

    What a ``Persistent`` keeps is pinned without a saver: there the layer is unchanged in both.
    """
    static = kind.row if "fan-out" in kind.row else "SAFE and registered only" if kind.fields else "SAFE"
    saves = any(recorded(example, seed).saved for example in specimen.examples)
    error = _reset_error(specimen, seed, with_saver=True)
    shown = RESET_PROOF if error <= TOLERANCE else f"changes under reset and poison (by {error:.1e})"
    if "fan-out" not in kind.row:
        return Row(specimen.name, "", static, shown, error <= TOLERANCE)
    bare = _reset_error(specimen, seed, with_saver=False)
    if bare <= TOLERANCE and any(isinstance(value, Persistent) for _, value in walk(specimen.examples[0](seed)[0])):
        shown = f"{shown}; kept by a Persistent, which pins without a saver"
        return Row(specimen.name, "", static, shown, error <= TOLERANCE)
    shown = f"{shown}; without a saver " + ("changes" if bare > TOLERANCE else "unchanged, too")
    return Row(specimen.name, "", static, shown, bare > TOLERANCE and (error <= TOLERANCE or not saves))


def _reset_error(specimen: Specimen, seed: int, with_saver: bool) -> float:
    error = 0.0
    for example in specimen.examples:
        for in_arena in (True, False):
            for steps in (1, 2):
                want = plain(example, seed) if steps == 1 else two_steps(example, seed).second
                got = under_reset(example, seed, inputs_in_arena=in_arena, steps=steps, with_saver=with_saver)
                error = max(error, worst(got.outcome, want), float(got.pins_left))
    return error


def table(found: Iterable[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| Type | Field | Static | Dynamic proof | Agree |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| {row.type} | {f'`{row.field}`' if row.field else '(whole layer)'} | {row.static} | {row.dynamic} "
        f"| {'yes' if row.agrees else '**no**'} |"
        for row in found
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 if a row disagrees, 2 for a path that isn't there."""
    parser = argparse.ArgumentParser(prog="python -m cachelint.runtime.evidence", description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[Path(path) for path in DEFAULT_PATHS])
    parser.add_argument("--audit", type=Path, help="a JSON report of `cachelint audit`; run on the paths by default")
    parser.add_argument("--json", action="store_true", help="rows as JSON")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    missing = [path for path in options.paths if not path.exists()]
    if missing:
        print(f"{missing[0]}: no such file or folder", file=sys.stderr)
        return 2
    report = json.loads(options.audit.read_text()) if options.audit else audit(options.paths)
    known = verdicts(report)
    found = [row for one in specimens(options.paths, options.device) for row in rows(one, known, options.seed)]
    print(json.dumps([asdict(row) for row in found], indent=2) if options.json else table(found))
    wrong = sum(not row.agrees for row in found)
    print(f"{len(found)} rows, {wrong} disagreements", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
