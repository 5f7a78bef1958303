"""The gated-delta-net projection: the saving, the live sets behind it, the storages' lifetimes, and the gradients."""

from __future__ import annotations

import importlib.util
import sys
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cachelint.runtime.layers.gdn import lora_projection as migrated
from cachelint.runtime.layers.init import Init
from cachelint.runtime.measure_fix import shipped_fixer
from cachelint.runtime.meter import Meter
from cachelint.runtime.meter_report import MeterReport

ROOT = Path(__file__).resolve().parents[2]
OWNERS = {"qkv", "z", "beta", "alpha"}
BYTES = 2  # bfloat16


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"legacy_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _mended(path: Path) -> ModuleType:
    """The module with the shipped lifetime fix applied to it in memory."""
    module = ModuleType(f"mended_{path.stem}")
    sys.modules[module.__name__] = module
    source = shipped_fixer()(path.read_text(encoding="utf-8"), str(path))
    exec(compile(source, f"{path} (fixed)", "exec"), module.__dict__)
    return module


LEGACY = ROOT / "fixtures/legacy/gdn/lora_projection.py"
legacy = _load(LEGACY)
mended = _mended(LEGACY)
FORMS = pytest.mark.parametrize("form", [legacy, migrated, mended], ids=["legacy", "migrated", "mended"])
AFTER = pytest.mark.parametrize("after_form", [migrated, mended], ids=["migrated", "mended"])


def blocks(rows: int, columns: int) -> int:
    return -(-rows * columns * BYTES // 512) * 512


def measured(form: Any, rows: int, mode: str) -> MeterReport:
    node = form.LoRAProjection(init=Init.seeded(0, "meta", torch.bfloat16))
    x = torch.empty(rows, 2048, dtype=torch.bfloat16, device="meta")
    grad = torch.empty(rows, 12352, dtype=torch.bfloat16, device="meta")
    start = {"x": x, "grad": grad, "base_weight": node.base_weight}
    for path, parameter in node.named_parameters():
        start[path] = parameter.value
    if mode == "autograd":
        x.requires_grad_()
        for parameter in node.parameters():
            parameter.value.requires_grad_()
    with nullcontext() if mode == "autograd" else torch.no_grad(), Meter(start) as meter:
        y = node.forward(x)
        if mode == "backward":
            node.backward(grad, x)
        if mode == "autograd":
            y.backward(grad)
    return meter.report()


@pytest.mark.parametrize("mode", ["forward", "backward", "autograd"])
@pytest.mark.parametrize("rows", [64_902, 64_900])
@AFTER
def test_the_saving_to_the_byte(after_form: Any, rows: int, mode: str) -> None:
    before, after = measured(legacy, rows, mode), measured(after_form, rows, mode)
    owners = sum(blocks(rows, columns) for columns in (8192, 4096, 32, 32))
    output = blocks(rows, 12352)
    # Released owners lower the addition by their bytes, but the concatenation, where they must live, stays as it was.
    assert before.peak - after.peak == min(owners, output)
    assert before.peak - after.peak == {64_902: 1_603_339_264, 64_900: 1_603_289_600}[rows]
    assert before.start == after.start


@pytest.mark.parametrize("rows", [64_902, 64_900])
def test_what_is_alive_at_both_peaks(rows: int) -> None:
    before, after = measured(legacy, rows, "forward"), measured(migrated, rows, "forward")
    assert before.peak_event is not None
    assert after.peak_event is not None
    assert (before.peak_event.site.op, after.peak_event.site.op) == ("aten.add.Tensor", "aten.cat.default")
    parameters = {"x", "grad", "base_weight", "a_qkv", "b_qkv", "a_z", "b_z"}
    alive = {live.owner: live.bytes for live in before.live}
    assert set(alive) == parameters | OWNERS | {"base", "adapters", "y"}
    assert {live.owner for live in after.live} == parameters | OWNERS | {"base", "adapters"}
    assert sum(alive.values()) == before.peak
    assert sum(alive[name] for name in OWNERS) == {64_902: 1_603_339_264, 64_900: 1_603_290_112}[rows]


class OwnersAtTheAddition(TorchDispatchMode):
    """Weak references to the storages that cat joins, looked at when the sum of its result is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.joined: list[weakref.ref[torch.UntypedStorage]] = []
        self.alive: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.cat.default:
            self.joined = [weakref.ref(part.untyped_storage()) for part in args[0]]
        if func is torch.ops.aten.add.Tensor:
            self.alive.append(sum(ref() is not None for ref in self.joined))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("gradients", [False, True], ids=["no_grad", "gradient"])
@FORMS
def test_the_storages_of_the_owners_at_the_addition(form: Any, gradients: bool) -> None:
    node, (x,) = form.example()
    mode: AbstractContextManager[Any] = nullcontext() if gradients else torch.no_grad()
    if gradients:
        x.requires_grad_()
        for parameter in node.parameters():
            parameter.value.requires_grad_()
    with mode, OwnersAtTheAddition() as watch:
        y = node.forward(x)
    assert y.requires_grad is gradients
    assert len(watch.joined) == 4
    assert watch.alive == [4 if form is legacy else 0]


def _gradients(form: Any, seed: int, dtype: torch.dtype) -> Iterator[Tensor]:
    init = Init.seeded(seed, "cpu", dtype)
    node = form.LoRAProjection(64, form.Columns(128, 64, 8, 8), rank=4, init=init)
    x, grad = init.normal(37, 64), init.normal(37, 208)
    yield node.forward(x)
    yield node.backward(grad, x)[0]
    for parameter in node.parameters():
        assert parameter.grad is not None
        yield parameter.grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@AFTER
def test_eighteen_comparisons_bit_for_bit(after_form: Any, dtype: torch.dtype) -> None:
    equal = [
        torch.equal(a, b)
        for seed in range(3)
        for a, b in zip(_gradients(legacy, seed, dtype), _gradients(after_form, seed, dtype), strict=True)
    ]
    assert equal == [True] * 18


@pytest.mark.parametrize("shape", [(6,), (1, 6), (3, 6), (2, 5, 6)])
@FORMS
def test_gradients_of_the_formula(form: Any, shape: tuple[int, ...]) -> None:
    node, _ = form.example(seed=3)
    torch.manual_seed(1)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    for parameter in node.parameters():
        parameter.value.requires_grad_()
    expected = form.reference(node, x)
    grad = torch.randn_like(expected)
    parameters = list(node.parameters())
    wanted = torch.autograd.grad(expected, [x, *(p.value for p in parameters)], grad)
    with torch.no_grad():
        torch.testing.assert_close(node.forward(x), expected)
        (grad_x,) = node.backward(grad, x)
    for found, want in zip([grad_x, *(p.grad for p in parameters)], wanted, strict=True):
        torch.testing.assert_close(found, want)
