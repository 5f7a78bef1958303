"""Static equals dynamic: the proof of one field, and the table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cachelint.runtime import Node, SaverAware
from cachelint.runtime.evidence import Verdict, agrees, main
from cachelint.runtime.proof import Effect, FieldProof, prove, registered_fields, scrambled, written_fields


@dataclass(frozen=True)
class Stats:
    mean: Tensor
    count: int


class Inner(Node):
    def forward(self, x: Tensor) -> Tensor:
        self.kept = torch.cos(x)
        return torch.sin(x)

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        return (grad * self.kept,)


class Zoo(SaverAware, Node):
    """One field of each kind."""

    def __init__(self) -> None:
        self.inner = Inner()
        self.untouched = torch.ones(1)
        self.counter = 0
        self.over_steps: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.counter += 1
        self.alias = x
        self.out = torch.tanh(x)
        self.dead = x * 2
        self.shares_with_out = self.out.view(-1)
        self.listed = [x.exp(), {"a": x.sin()}]
        self.stats = Stats(x.mean(-1, keepdim=True), 3)
        self.shape = x.shape
        self.order = x.argsort(-1)
        self.positive = x > 0
        self.like = x + 1
        self.fallback = x
        self.saved = x.exp()
        self.save_for_backward(self.saved)
        hidden = x.cos()
        self.closure = lambda: hidden
        y = self.inner.forward(x) + (0 if self.over_steps is None else self.over_steps)
        self.over_steps = x.sum()
        return y

    def backward(self, grad: Tensor, *inputs: Tensor) -> tuple[Tensor]:
        x = inputs[0] if inputs else self.fallback
        (found,) = self.inner.backward(grad, x)
        found = found + grad * torch.sin(self.alias) + grad * self.out + grad * self.listed[0]
        found = found + grad * self.stats.mean + grad.gather(-1, self.order) + grad * self.positive
        found = found + torch.zeros(self.like.shape, dtype=x.dtype) + x + self.saved
        return (found + self.closure(),)


def example(seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Zoo, tuple[Tensor, ...]]:
    generator = torch.Generator().manual_seed(seed)
    return Zoo().to(device), (torch.randn(2, 3, generator=generator, dtype=dtype).to(device),)


EFFECTS = {
    "counter": Effect.HOST,
    "alias": Effect.CORRUPTS,
    "out": Effect.CORRUPTS,
    "dead": Effect.NOTHING,
    "shares_with_out": Effect.NOTHING,
    "listed": Effect.CORRUPTS,
    "stats": Effect.CORRUPTS,
    "shape": Effect.HOST,
    "order": Effect.CORRUPTS,
    "positive": Effect.CORRUPTS,
    "like": Effect.SHAPE_ONLY,
    "fallback": Effect.WITHOUT_INPUTS,
    "saved": Effect.CORRUPTS,
    "closure": Effect.CORRUPTS,
    "over_steps": Effect.NEXT_STEP,
    "inner": Effect.HANDLE,
    "untouched": Effect.NOTHING,
    "no such field": Effect.HOST,
}


@pytest.mark.parametrize("field", sorted(EFFECTS))
def test_the_effect_of_each_kind_of_field(field: str, device: str) -> None:
    def on_device(seed: int) -> tuple[Node, tuple[Tensor, ...]]:
        return example(seed, device)

    assert prove((on_device,), field).effect is EFFECTS[field]


def test_the_fields_that_forward_writes_are_found_by_looking() -> None:
    assert set(written_fields(example)) == set(EFFECTS) - {"inner", "untouched", "no such field"}


def test_registered_fields_are_those_whose_tensors_are_all_saved() -> None:
    assert registered_fields((example,)) == {"saved"}


def test_a_field_that_is_none_in_one_mode_counts_in_the_others() -> None:
    class Modal(SaverAware, Node):
        def __init__(self, keeps: bool, saves: bool) -> None:
            self.keeps, self.saves = keeps, saves

        def forward(self, x: Tensor) -> Tensor:
            self.kept = x * 2 if self.keeps else None
            self.save_for_backward(self.kept if self.saves else None)
            return x * 1

    def one(keeps: bool, saves: bool) -> Any:
        return lambda seed: (Modal(keeps, saves), (torch.ones(2),))

    assert registered_fields((one(True, True), one(False, True))) == {"kept"}
    assert registered_fields((one(True, True), one(True, False))) == set()


def test_the_strongest_example_counts() -> None:
    class Switch(Node):
        def __init__(self, reads: bool) -> None:
            self.reads = reads

        def forward(self, x: Tensor) -> Tensor:
            self.kept = x * 2
            return x * x

        def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
            return (grad * (self.kept if self.reads else 2 * x),)

    def one(reads: bool) -> Any:
        return lambda seed: (Switch(reads), (torch.ones(2, dtype=torch.float64),))

    assert prove((one(False),), "kept").effect is Effect.NOTHING
    assert prove((one(False), one(True)), "kept").effect is Effect.CORRUPTS


@pytest.mark.parametrize(
    "tensor",
    [torch.tensor([0.0, -1.0, 2.0]), torch.tensor([3, 1, 2]), torch.tensor([True, False]), torch.tensor([1 + 2j])],
)
def test_scrambled_values_differ_and_integers_stay_in_range(tensor: Tensor) -> None:
    other = scrambled(tensor)
    assert other.dtype is tensor.dtype
    assert (other != tensor).any()
    if tensor.dtype is torch.int64:
        assert sorted(other.tolist()) == sorted(tensor.tolist())


@pytest.mark.parametrize(
    ("verdict", "effect", "expected"),
    [
        (Verdict("f", "SAVE"), Effect.CORRUPTS, True),
        (Verdict("f", "RECOMPUTE"), Effect.WITHOUT_INPUTS, True),
        (Verdict("f", "SAVE"), Effect.NEXT_STEP, True),
        (Verdict("f", "RECOMPUTE"), Effect.SHAPE_ONLY, True),
        (Verdict("f", "SAVE"), Effect.NOTHING, False),
        (Verdict("f", "SAVE"), Effect.HOST, False),
        (Verdict("f", "SAVE", read=False), Effect.NOTHING, True),
        (Verdict("f", "SAVE", read=False), Effect.CORRUPTS, False),
        (Verdict("f", "SAVE", read=False), Effect.NEXT_STEP, True),
        (Verdict("f", "SAFE"), Effect.NEXT_STEP, False),
        (Verdict("f", "SAFE"), Effect.HOST, True),
        (Verdict("f", "SAFE"), Effect.HANDLE, True),
        (Verdict("f", "SAFE"), Effect.CORRUPTS, False),
        (None, Effect.NOTHING, True),
        (None, Effect.CORRUPTS, False),
    ],
)
def test_agreement(verdict: Verdict | None, effect: Effect, expected: bool) -> None:
    assert agrees(verdict, FieldProof("f", effect)) is expected


# ---- the command

LAYER = """
import torch
from cachelint.runtime import Node, SaverAware

class Square({bases}):
    def forward(self, x):
        self.last_input = x
        self.twice = 2 * x
        {register}
        self.shape = tuple(x.shape)
        return x * x

    def backward(self, grad, *inputs):
        return ((grad * {read}).reshape(self.shape),)

def example(seed, device, dtype):
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed), dtype=dtype).to(device)
    return Square(), (x,)

def example_of_one_row(seed, device, dtype):
    node, (x,) = example(seed, device, dtype)
    return node, (x[:1].clone(),)
"""


def written(folder: Path, *, bases: str = "Node", register: str = "", read: str = "self.twice") -> Path:
    path = folder / "toys" / "square.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(LAYER.format(bases=bases, register=register, read=read))
    return path


def report(folder: Path, path: Path, *fields: tuple[str, str, bool, bool], row: str = "SAFE") -> str:
    kinds = [
        {
            "path": path.as_posix(),
            "type": "Square",
            "class": row,
            "fields": [{"field": f, "class": c, "read": r, "registered": g} for f, c, r, g in fields],
        }
    ]
    target = folder / "audit.json"
    target.write_text(json.dumps({"types": kinds}))
    return str(target)


def test_a_table_without_disagreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path)
    known = report(
        tmp_path,
        path,
        ("last_input", "RECOMPUTE", False, False),
        ("twice", "SAVE", True, False),
        ("shape", "SAFE", True, False),
    )
    assert main(["--audit", known, str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[2:] == [
        "| toys.Square | `last_input` | RECOMPUTE, never read | changes nothing | yes |",
        "| toys.Square | `twice` | SAVE | corrupts the gradient (NaN or error) | yes |",
        "| toys.Square | `shape` | SAFE | holds no device storage | yes |",
    ]
    assert shown.err == "3 rows, 0 disagreements\n"


def test_a_field_that_the_audit_missed_or_misjudged_is_a_disagreement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path)
    missed = report(tmp_path, path, ("last_input", "RECOMPUTE", True, False))
    assert main(["--audit", missed, "--json", str(tmp_path)]) == 1
    found = {row["field"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["twice"]["static"] == "not listed"
    assert not found["twice"]["agrees"]
    assert not found["last_input"]["agrees"]  # said to be read, and it is not
    judged = report(tmp_path, path, ("twice", "SAFE", True, False))
    assert main(["--audit", judged, "--json", str(tmp_path)]) == 1
    assert [row["agrees"] for row in json.loads(capsys.readouterr().out) if row["field"] == "twice"] == [False]


def test_a_registered_field_is_proved_by_the_whole_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, bases="SaverAware, Node", register="self.save_for_backward(self.twice)")
    known = report(tmp_path, path, ("last_input", "RECOMPUTE", False, False), ("twice", "SAVE", True, True))
    assert main(["--audit", known, str(tmp_path)]) == 0
    assert (
        "| (whole layer) | SAFE and registered only | unchanged under reset and poison | yes |"
        in capsys.readouterr().out
    )


def test_a_layer_that_only_says_that_it_registers_is_caught(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, bases="SaverAware, Node", register="self.save_for_backward(x)")
    known = report(tmp_path, path, ("twice", "SAVE", True, True))
    assert main(["--audit", known, str(tmp_path)]) == 1
    assert "changes under reset and poison (by inf)" in capsys.readouterr().out


def test_a_registered_field_that_the_audit_does_not_see_as_registered_is_a_disagreement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, bases="SaverAware, Node", register="self.save_for_backward(self.twice)")
    known = report(tmp_path, path, ("last_input", "RECOMPUTE", False, False), ("twice", "SAVE", True, False))
    assert main(["--audit", known, str(tmp_path)]) == 1
    assert "| toys.Square | `twice` | SAVE, not registered | is registered | **no** |" in capsys.readouterr().out


COMPOSITE = """
import torch
from cachelint.runtime import Node, SaverAware

class Child({bases}):
    def forward(self, x):
        self.kept = torch.cos(x)
        {register}
        return torch.sin(x)

    def backward(self, grad, x):
        return (grad * self.kept,)

class Square(Node):
    def __init__(self):
        self.child = Child()

    def forward(self, x):
        return self.child.forward(x)

    def backward(self, grad, x):
        return self.child.backward(grad, x)

def example(seed, device, dtype):
    return Square(), (torch.randn(2, 3, generator=torch.Generator().manual_seed(seed), dtype=dtype).to(device),)
"""


@pytest.mark.parametrize(
    ("bases", "register", "row", "status", "shown"),
    [
        ("Node", "", "SAVE (fan-out)", 0, "changes under reset and poison (by inf); without a saver changes | yes"),
        ("Node", "", "SAFE", 1, "changes under reset and poison (by inf) | **no**"),
        ("SaverAware, Node", "self.save_for_backward(self.kept)", "SAVE (fan-out)", 0, "without a saver changes | yes"),
        ("SaverAware, Node", "self.save_for_backward(self.kept)", "SAFE", 0, "unchanged under reset and poison | yes"),
        ("SaverAware, Node", "self.save_for_backward(x)", "SAVE (fan-out)", 1, "without a saver changes | **no**"),
    ],
)
def test_a_composite_is_proved_through_its_children(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bases: str, register: str, row: str, status: int, shown: str
) -> None:
    path = tmp_path / "toys" / "square.py"
    path.parent.mkdir()
    path.write_text(COMPOSITE.format(bases=bases, register=register))
    assert main(["--audit", report(tmp_path, path, row=row), str(tmp_path)]) == status
    assert shown in capsys.readouterr().out


KEEPER = """
import torch
from cachelint.runtime import Node, Persistent

class Square(Node):
    def __init__(self):
        self.cache = {cache}

    def forward(self, x):
        return x * self.cache.fetch(lambda: torch.full((3,), 2.0, dtype=x.dtype))

    def backward(self, grad, x):
        return (grad * self.cache.fetch(lambda: None),)

class Unpinned:
    value = None

    def fetch(self, make):
        self.value = make() if self.value is None else self.value
        return self.value

def example(seed, device, dtype):
    return Square(), (torch.randn(2, 3, generator=torch.Generator().manual_seed(seed), dtype=dtype).to(device),)
"""


@pytest.mark.parametrize("cache", ["Persistent", "Unpinned"])
def test_what_a_persistent_keeps_needs_no_saver(tmp_path: Path, capsys: pytest.CaptureFixture[str], cache: str) -> None:
    path = tmp_path / "toys" / "square.py"
    path.parent.mkdir()
    path.write_text(KEEPER.format(cache=f"{cache}()"))
    known = report(tmp_path, path, row="SAVE (fan-out)")
    assert main(["--audit", known, str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert ("unchanged under reset and poison; kept by a Persistent" in shown) == (cache == "Persistent")
    assert ("| changes under reset and poison" in shown) == (cache == "Unpinned")


def test_a_path_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nowhere"]) == 2
    assert capsys.readouterr().err == "nowhere: no such file or folder\n"
