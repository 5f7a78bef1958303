"""The verify command on planted faults, on the same code under the contract, and on the reference layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cachelint.cli import run
from cachelint.runtime.target import Setup
from cachelint.runtime.target_load import load
from cachelint.runtime.verify import verify

ROOT = Path(__file__).resolve().parents[2]
LAYERS = sorted(
    path
    for path in (ROOT / "cachelint/runtime/layers").glob("*/*.py")
    if "\ndef example(" in path.read_text(encoding="utf-8")
)

CODE = '''
import torch
from cachelint.runtime import Node, Parameter, SaverAware


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale=1):
        e = x.exp()
        ctx.e = e + 0
        ctx.dead = e.sin()
        return e * scale

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.e, None


class Saved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        e = x.exp()
        ctx.save_for_backward(e)
        return e

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


class Scale(SaverAware, Node):
    """Its derivative is off by the factor; the memory is in order."""

    def __init__(self, n, factor=1.0):
        self.w = Parameter(torch.arange(1.0, n + 1), "w")
        self.factor = factor

    def forward(self, x):
        return x * self.w.value

    def backward(self, grad, x):
        self.w.accumulate((grad * x).sum(0) * self.factor)
        return (grad * self.w.value,)


class Stale(Node):
    def forward(self, x):
        self.last_input = x
        return x * x

    def backward(self, grad, *inputs):
        return (2 * grad * (inputs[0] if inputs else self.last_input),)


def fails(x):
    raise KeyError("no such thing")


def reference(node, x):
    return x * node.w.value if isinstance(node, Scale) else x * x
'''


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "layers.py"
    file.write_text(CODE)
    return str(file)


def cli(*argv: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = run(["verify", *argv])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_hazard_is_shown_with_its_place(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = cli(f"{path}:Kept", "--input", "4,5", "--input", "=2", capsys=capsys)
    lines = out.splitlines()
    assert status == 1
    assert lines[0].endswith("layers.py:Kept(float32 [4, 5], 2)")
    (hazard,) = [line for line in lines if line.startswith("hazard: ")]
    assert "Kept: ctx.e" in hazard
    assert "layers.py:10" in hazard
    assert hazard.endswith("input 0 turns NaN")
    assert sum(line.startswith("kept and not read: intermediate Kept: ctx.dead") for line in lines) == 1
    assert lines[-1].startswith("proven: backward reads one unregistered storage")


def test_the_contract_is_clean(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = cli(f"{path}:Saved", "--input", "4,5", capsys=capsys)
    assert status == 0
    assert "clean: " in out
    assert "hazard" not in out


def test_json(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = cli(f"{path}:Kept", "--input", "3", "--format", "json", capsys=capsys)
    found = json.loads(out)
    assert (status, found["ok"], found["inputs"]) == (1, False, ["float32 [3]"])
    (hazard,) = found["hazards"]
    assert (hazard["path"], hazard["effect"], hazard["gradients"]) == ("Kept: ctx.e", "nan", ["input 0"])
    assert hazard["made"].endswith("layers.py:10")
    assert found["gradients"]["input 0"]["poisoned"] is None


def test_live_inputs_and_without(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(f"{path}:Stale", "--input", "4,5", capsys=capsys)[0] == 0
    status, out, _ = cli(f"{path}:Stale", "--input", "4,5", "--without-live-inputs", capsys=capsys)
    assert (status, "self.last_input" in out) == (1, True)


@pytest.mark.parametrize(("factor", "status"), [("1.0", 0), ("1.01", 1)])
def test_a_wrong_gradient_is_seen_beside_the_reference(
    path: str, factor: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [f"{path}:Scale", "--input", "4,5", "--init", "n=5", "--init", f"factor={factor}", "--dtype", "float64"]
    found, out, _ = cli(*argv, capsys=capsys)
    assert found == status
    assert ("wrong: self.w.grad is off the reference by 0.01" in out) is (status == 1)
    assert "hazard" not in out


def test_mistakes_are_one_line(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    for argv, why in [
        ((f"{path}:Kept",), "give its arguments with --input"),
        ((f"{path}:Nothing",), "there is no 'Nothing'; it has"),
        ((f"{path}:fails", "--input", "3"), "fails without poison: KeyError"),
        ((f"{path}:Kept", "--input", "3", "--device", "meta"), "needs values"),
        ((f"{path}:Stale", "--input", "3", "--order", "2"), "no second derivative"),
        ((f"{path}:Kept", "--input", "3:nope"), "is no dtype"),
        ((f"{path}:Kept", "--input", "3", "--example", "x", "--dtype", "q"), "is no dtype"),
        ((f"{path}:Kept", "--example", "x"), "no function example_x"),
    ]:
        status, out, err = cli(*argv, capsys=capsys)
        assert (status, out) == (2, ""), argv
        assert why in err, err
        assert len(err.strip().splitlines()) == 1


def _examples(layer: Path) -> list[str]:
    names = [name for name in vars(load(str(layer)).module) if name == "example" or name.startswith("example_")]
    return [name.removeprefix("example").removeprefix("_") for name in names]


def _check(layer: Path, example: str) -> None:
    found = verify(load(str(layer)), Setup(dtype=torch.float64, example=example))
    assert found.ok, "\n".join([*map(str, found.proof.hazards), *found.wrong])
    assert not found.proof.notes


@pytest.mark.parametrize("layer", LAYERS[::6], ids=lambda layer: layer.stem)
def test_reference_layers_are_clean_and_right(layer: Path) -> None:
    _check(layer, "")


@pytest.mark.nightly
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.stem)
def test_every_example_of_every_layer(layer: Path) -> None:
    for example in _examples(layer):
        _check(layer, example)


def test_a_package_module_by_its_dotted_name(capsys: pytest.CaptureFixture[str]) -> None:
    argv: list[Any] = ["torch.nn:LayerNorm", "--init", "normalized_shape=6", "--input", "3,6", "--order", "2"]
    status, out, _ = cli(*argv, capsys=capsys)
    assert status == 0
    assert "second derivative, input 0" in out
