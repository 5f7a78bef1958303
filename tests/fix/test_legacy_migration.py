"""``cachelint fix`` on every pre-migration layer, end to end: what it leaves behind is under the contract, and right.

The layers are copied under another package name, so that both forms can run in one process.
"""

from __future__ import annotations

import functools
import inspect
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from cachelint.runtime import Node
from cachelint.runtime.evidence import Specimen, specimens
from cachelint.runtime.harness import (
    Example,
    Outcome,
    as_function,
    plain,
    recorded,
    run_backward,
    run_forward,
    two_steps,
    under_reset,
    upstream,
    worst,
)

ROOT = Path(__file__).parents[2]
LEGACY = ROOT / "fixtures" / "legacy"
PACKAGE = "migrated_layers"
FILES = sorted(p.relative_to(LEGACY).as_posix() for p in LEGACY.rglob("*.py") if not p.name.startswith("_"))
RUNNABLE = [name for name in FILES if "def example" in (LEGACY / name).read_text()]
OUTLIVING = {"recurrent/simple_rnn.py", "core/mat_mul_nbits.py"}
"""What these keep outlives the step: it is not handed to the saver, but kept by Persistent."""


def cachelint(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cachelint", *arguments, "--no-cache", "--jobs", "1"],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def audit(cwd: Path) -> dict[tuple[str, str], dict[str, Any]]:
    done = cachelint("audit", PACKAGE, "--format", "json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return {(t["path"], t["type"]): t for t in json.loads(done.stdout)["types"]}


@dataclass(frozen=True)
class Migration:
    """The copy of the layers, and what the audit said before and after the fix."""

    root: Path
    before: dict[tuple[str, str], dict[str, Any]]
    after: dict[tuple[str, str], dict[str, Any]]
    fixed: subprocess.CompletedProcess[str]

    def flagged(self, report: dict[tuple[str, str], dict[str, Any]]) -> dict[tuple[str, str], list[str]]:
        found = {
            key: [f["field"] for f in kind["fields"] if f["class"] != "SAFE" and f["read"] and not f["registered"]]
            for key, kind in report.items()
        }
        return {key: fields for key, fields in found.items() if fields}


@pytest.fixture(scope="module")
def migration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Migration]:
    root = tmp_path_factory.mktemp("copy")
    shutil.copytree(LEGACY, root / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (root / PACKAGE).rglob("*.py"):
        path.write_text(path.read_text().replace("fixtures.legacy", PACKAGE))
    before = audit(root)
    fixed = cachelint("fix", PACKAGE, cwd=root)
    sys.path.insert(0, str(root))
    yield Migration(root, before, audit(root), fixed)
    sys.path.remove(str(root))
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def examples(migration: Migration, name: str) -> list[tuple[Example, Example]]:
    """Each example of a layer in both forms."""
    old, new = (_specimen(folder / name) for folder in (LEGACY, migration.root / PACKAGE))
    return list(zip(old.examples, new.examples, strict=True))


@functools.cache
def _specimen(path: Path) -> Specimen:
    return next(specimens([path]))


def same(a: Outcome, b: Outcome) -> bool:
    """Equal to the bit, parameters by name."""
    pairs = [*zip(a.outputs, b.outputs, strict=True), *zip(a.inputs, b.inputs, strict=True)]
    pairs += [(x, y) for (n, x), (m, y) in zip(a.parameters, b.parameters, strict=True) if n == m]
    assert len(a.parameters) == len(b.parameters)
    return all((x is None and y is None) or (x is not None and y is not None and torch.equal(x, y)) for x, y in pairs)


# ---- what the audit says


def test_nothing_is_left_but_safe_and_registered(migration: Migration) -> None:
    assert len(migration.flagged(migration.before)) >= 40
    assert migration.flagged(migration.after) == {}
    rows = {kind["class"] for kind in migration.after.values()}
    assert {row.replace("SAFE", "").strip(" +-") for row in rows} <= {"", "SAVE (fan-out)"}
    assert set(migration.after) == {(path, kind) for path, kind in migration.before}


def test_no_field_is_waved_through(migration: Migration) -> None:
    """What was flagged is registered now, or gone."""
    for key, fields in migration.flagged(migration.before).items():
        now = {f["field"]: f for f in migration.after[key]["fields"]}
        assert [name for name in fields if name in now and not now[name]["registered"]] == [], key


def test_nobody_keeps_what_nobody_reads(migration: Migration) -> None:
    unread = {key: [f["field"] for f in kind["fields"] if not f["read"]] for key, kind in migration.after.items()}
    assert {key: fields for key, fields in unread.items() if fields} == {}


def test_the_check_finds_nothing_more_to_fix(migration: Migration) -> None:
    assert "fixed " in migration.fixed.stderr
    texts = {path: path.read_bytes() for path in (migration.root / PACKAGE).rglob("*.py")}
    again = cachelint("fix", PACKAGE, cwd=migration.root)
    assert "fixed 0 findings" in again.stderr
    assert {path: path.read_bytes() for path in texts} == texts


def test_what_has_no_findings_is_left_byte_for_byte(migration: Migration) -> None:
    found = {path for path, _ in migration.flagged(migration.before)}
    touched = {line.partition(":")[0] for line in migration.fixed.stdout.splitlines()}
    assert found <= touched
    for name in FILES:
        if f"{PACKAGE}/{name}" not in touched:
            old = (LEGACY / name).read_text().replace("fixtures.legacy", PACKAGE)
            assert (migration.root / PACKAGE / name).read_text() == old


# ---- what the layers do


@pytest.mark.parametrize("name", RUNNABLE)
def test_outputs_and_gradients_are_the_same_to_the_bit(migration: Migration, name: str) -> None:
    for old, new in examples(migration, name):
        for seed in (0, 1):
            assert same(plain(old, seed), plain(new, seed))
            a, b = two_steps(old, seed), two_steps(new, seed)
            assert same(a.first, b.first)
            assert same(a.second, b.second)


@pytest.mark.parametrize("name", RUNNABLE)
def test_evaluation_mode_is_as_it_was(migration: Migration, name: str) -> None:
    for old, new in examples(migration, name):
        try:
            want = plain(old, training=False)
        except RuntimeError as error:  # a child of the reference layers, which keeps nothing in evaluation mode
            with pytest.raises(RuntimeError, match=str(error)):
                plain(new, training=False)
        else:
            assert same(want, plain(new, training=False))


@pytest.mark.parametrize("name", RUNNABLE)
def test_reset_and_poison_change_nothing(migration: Migration, name: str) -> None:
    for _, new in examples(migration, name):
        for in_arena in (False, True):
            for steps in (1, 2):
                trial = under_reset(new, inputs_in_arena=in_arena, steps=steps)
                assert trial.error is None, trial.error
                want = plain(new) if steps == 1 else two_steps(new).second
                assert worst(trial.outcome, want) == 0
                assert trial.pins_left == 0


@pytest.mark.parametrize("name", RUNNABLE)
def test_finite_differences_say_the_same(migration: Migration, name: str) -> None:
    for old, new in examples(migration, name):
        assert _right(new) is _right(old)


def _right(example: Example) -> bool:
    function, tensors = as_function(_trimmed(example))
    return not tensors or torch.autograd.gradcheck(function, tensors, fast_mode=True, raise_exception=False)


def _trimmed(example: Example) -> Example:
    """The layer with a backward that takes every live input, also where its own takes only the first of them."""

    def make(seed: int) -> tuple[Node, tuple[torch.Tensor, ...]]:
        node, inputs = example(seed)
        own = node.backward
        kinds = [p.kind for p in inspect.signature(own).parameters.values()]
        taken = None if inspect.Parameter.VAR_POSITIONAL in kinds else len(kinds) - 1
        node.backward = lambda grad, *live: own(grad, *live[:taken])
        return node, inputs

    return make


@pytest.mark.parametrize("name", RUNNABLE)
def test_a_second_backward_adds_up(migration: Migration, name: str) -> None:
    for _, new in examples(migration, name):
        node, inputs = new(0)
        result = run_forward(node, inputs, 0)
        grads = upstream(result if isinstance(result, tuple) else (result,), 0)
        once = run_backward(node, result, grads, inputs)
        twice = run_backward(node, result, grads, inputs)
        for a, b in zip(once, twice, strict=True):
            assert (a is None and b is None) or torch.equal(a, b)


def test_what_is_saved_is_really_handed_over(migration: Migration) -> None:
    """The saver sees tensors wherever the audit shows a registered field; without it poison changes the gradient."""
    registered = {path for (path, _), kind in migration.after.items() if any(f["registered"] for f in kind["fields"])}
    assert len(registered) > 20
    for path in sorted(registered):
        name = path.removeprefix(f"{PACKAGE}/")
        assert any(recorded(new, training=True).saved for _, new in examples(migration, name)), name
        errors = [
            worst(under_reset(new, training=True, with_saver=False).outcome, plain(new, training=True))
            for _, new in examples(migration, name)
        ]
        assert max(errors) > 1e-3, name


def test_what_outlives_the_step_survives_it(migration: Migration) -> None:
    for name in sorted(OUTLIVING):
        for _, new in examples(migration, name):
            assert recorded(new, training=True).saved == ()
            trial = under_reset(new, steps=2, inputs_in_arena=True)
            assert worst(trial.outcome, two_steps(new).second) == 0
