"""Chainer's function nodes: before and after, line by line, and the same numbers under both of its contracts."""

from __future__ import annotations

import ast
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from cachelint.model import Applicability
from tests.fix.differential import fixed, module_of
from tests.fix.test_pairs import DATA, after_of

np = pytest.importorskip("numpy")
PAIRS = sorted(p for p in (DATA / "nodes").glob("*.py") if not p.name.endswith(".fixed.py"))
REFUSED = sorted((DATA / "nodes_refused").glob("*.py"))


class Variable:
    """An array in a graph, as far as these nodes look at it."""

    def __init__(self, array: Any) -> None:
        self.array = array


class Contract:
    """What a node may keep: the inputs and outputs that it names."""

    kept: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()

    def retain_inputs(self, places: tuple[int, ...]) -> None:
        assert isinstance(places, tuple)
        self.kept = places

    def retain_outputs(self, places: tuple[int, ...]) -> None:
        assert isinstance(places, tuple)
        self.outputs = places

    def get_retained_inputs(self) -> tuple[Variable, ...]:
        return tuple(Variable(self.given[place]) for place in self.kept)

    def get_retained_outputs(self) -> tuple[Variable, ...]:
        return tuple(Variable(self.made[place]) for place in self.outputs)

    @property
    def output_data(self) -> tuple[Any, ...]:
        return tuple(self.made.get(place) for place in range(self.how_many))

    def run(self, inputs: tuple[Any, ...], device: str) -> list[Any]:
        """The outputs, and the gradients for gradients that differ from place to place."""
        forward = getattr(self, "forward", None) or getattr(self, f"forward_{device}")
        made = forward(inputs)
        # Nobody else keeps what is not retained.
        self.given = {place: inputs[place] for place in self.kept}
        self.made = {place: made[place] for place in self.outputs}
        self.how_many = len(made)
        grads = tuple(np.linspace(1, 2, out.size).reshape(out.shape) for out in made)
        if isinstance(self, Node):
            backward = self.backward(tuple(range(len(inputs))), tuple(map(Variable, grads)))  # type: ignore[attr-defined]
        else:
            call = getattr(self, "backward", None) or getattr(self, f"backward_{device}")
            backward = call(inputs, grads)
        return [*made, *backward]


class Node(Contract):
    """``FunctionNode``."""


class Older(Contract):
    """``Function``."""


def elementwise(*source: str) -> Any:
    """A kernel that turns a column over, in place."""

    def kernel(t: Any, y: Any) -> Any:
        y[:, 1] *= t
        return y

    return kernel


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a stand-in for chainer where the programs import it from."""
    modules = {
        "chainer": {"FunctionNode": Node, "Function": Older},
        "chainer.function_node": {"FunctionNode": Node},
        "chainer.function": {"Function": Older},
        "chainer.backend": {"get_array_module": lambda *arrays: np},
        "chainer.cuda": {"elementwise": elementwise},
        "chainer.utils": {"force_array": np.asarray},
    }
    for name, content in modules.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
        if "." in name:
            setattr(sys.modules["chainer"], name.partition(".")[2], module)


def array(seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=(3, 4))


LOW, HIGH = np.full(4, 0.5), np.full(4, 2.0)
SIGNS = np.array([1.0, -1.0, 1.0])

RUNS: dict[str, tuple[str, tuple[Any, ...], tuple[Any, ...]]] = {
    "Difference": ("difference", (), (array(0), array(1))),
    "Hinge": ("difference", (0.5,), (array(0), np.sign(array(1)), np.abs(array(2)))),
    "Centred": ("live", (), (array(0), array(1))),
    "Mask": ("live", (), (array(0),)),
    "Turned": ("live", (), (array(0),)),
    "Scaled": ("live", (), (array(0), array(1)[0])),
    "Power": ("output", (), (np.abs(array(0)), array(1))),
    "Gate": ("output", (0,), (array(0),)),
    "Twice": ("output", (), (array(0),)),
    "Checked:yes": ("paths", (True,), (array(0),)),
    "Checked:no": ("paths", (False,), (array(0),)),
    "Counted:normal": ("paths", ("mean", True), (array(0), np.sign(array(1)).clip(0))),
    "Counted:length": ("paths", ("mean", False), (array(0), np.sign(array(1)).clip(0))),
    "Counted:each": ("paths", ("no", True), (array(0), np.sign(array(1)).clip(0))),
    "Fused:made": ("paths", (), (array(0), LOW)),
    "Fused:not": ("paths", (), (array(0), HIGH)),
    "FusedGrad:given": ("paths", (HIGH,), (array(0), LOW)),
    "FusedGrad:none": ("paths", (), (array(0), LOW)),
    "Elsewhere:cpu": ("paths", (False,), (array(0),)),
    "Elsewhere:plain": ("paths", (True,), (array(0),)),
    "Elsewhere:gpu": ("paths", (False,), (array(0),)),
    "Gates": ("replayed", (), (array(0)[:1], array(1)[:1], array(2))),
    "Path": ("replayed", (), (array(0),)),
    "Margin:cpu": ("replayed", (), (array(0), SIGNS)),
    "Margin:gpu": ("replayed", (), (array(0), SIGNS)),
    "Filled": ("replayed", (), (array(0),)),
}


@pytest.mark.parametrize("path", PAIRS, ids=lambda p: p.stem)
def test_the_fix_is_what_a_person_would_write(path: Path) -> None:
    outcome = fixed(path.read_text())
    assert outcome.text == after_of(path)
    assert outcome.refused == ()
    assert all(plan.applicability is Applicability.SAFE for plan in outcome.applied)


@pytest.mark.parametrize("path", PAIRS, ids=lambda p: p.stem)
def test_fixing_twice_changes_nothing(path: Path) -> None:
    text = after_of(path)
    ast.parse(text)
    assert fixed(text).text == text


@pytest.mark.parametrize("kind", RUNS)
def test_the_numbers_stay(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    name, options, inputs = RUNS[kind]
    path = DATA / "nodes" / f"{name}.py"
    kind, _, variant = kind.partition(":")
    device = "gpu" if variant == "gpu" else "cpu"
    before = getattr(module_of(path.read_text()), kind)(*options)
    after = getattr(module_of(after_of(path)), kind)(*options)
    was = before.run(tuple(x.copy() for x in inputs), device)
    now = after.run(tuple(x.copy() for x in inputs), device)
    assert len(was) == len(now)
    for a, b in zip(was, now, strict=True):
        assert (a is None and b is None) or (a.dtype == b.dtype and a.tobytes() == b.tobytes())
    ours = {"given", "made", *(name for name, value in vars(after).items() if any(value is o for o in options))}
    kept = {name for name, value in vars(after).items() if isinstance(value, (np.ndarray, list)) and name not in ours}
    assert kept <= {"mean"}  # that of all steps


@pytest.mark.parametrize("path", REFUSED, ids=lambda p: p.stem)
def test_what_cannot_be_proved_is_left_alone_with_a_reason(path: Path) -> None:
    text = path.read_text()
    outcome = fixed(text, unsafe=True)
    assert outcome.text == text
    assert {refusal.kind for refusal in outcome.refused} == {text.splitlines()[0].removeprefix("# refused: ")}


def test_every_node_runs() -> None:
    named = {n.name for p in PAIRS for n in ast.parse(p.read_text()).body if isinstance(n, ast.ClassDef)}
    assert named == {kind.partition(":")[0] for kind in RUNS}
