"""What only the program knows to be a tensor: the same numbers whether it is one, and no tensor left on ctx."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.fix.differential import module_of, same
from tests.fix.test_pairs import DATA


def x(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(3, 3, dtype=torch.float64, generator=generator).add_(0.1).requires_grad_()


def norm(value: Tensor, other: Any = None) -> Any:
    """A kernel that gives a tensor, or hands a number on."""
    if other is None:
        return value.detach().norm()
    return value * other if isinstance(other, Tensor) else other


def number(value: Tensor, other: Any = None) -> Any:
    """A kernel of the same name that gives numbers only."""
    return value.detach() * 2 if isinstance(other, float) else 0.5


def gather(grad: Tensor, chosen: Any) -> Tensor:
    """Takes a mask or a number."""
    return grad * chosen if isinstance(chosen, Tensor) else grad + chosen


Case = tuple[str, str, Callable[..., Any], Callable[[], tuple[Any, ...]]]
CASES: dict[str, Case] = {
    "a number": ("number_or_tensor", "NumberOrTensor", norm, lambda: (x(), x(1), False)),
    "a sum": ("number_or_tensor", "NumberOrTensor", norm, lambda: (x(), x(1), True)),
    "of many: a tensor": ("one_of_many", "Fn", norm, lambda: (x(), x(1).detach())),
    "of many: a number": ("one_of_many", "Fn", norm, lambda: (x(), 2.0)),
    "a mask": ("only_a_name", "Fn", norm, lambda: (x(), x(1).detach() > 0.5)),
    "a flag": ("only_a_name", "Fn", norm, lambda: (x(), True)),
    "a factor": ("factor_of_unknown_kind", "Scale", norm, lambda: (x(), x(1).detach(), True)),
    "a factor that is a number": ("factor_of_unknown_kind", "Scale", number, lambda: (x(), 1.5, False)),
    "late": ("bound_later", "Late", norm, lambda: (x(), False)),
    "late, a number": ("bound_later", "Late", number, lambda: (x(), False)),
    "never bound": ("bound_later", "Late", norm, lambda: (x(), True)),
    "arguments": ("mixed_arguments", "Arguments", norm, lambda: (x(), scaled, 2.0, x(1).detach(), None)),
    "no arguments": ("mixed_arguments", "Arguments", norm, lambda: (x(), torch.exp)),
    "options": ("mixed_arguments", "Options", norm, lambda: (x(), x(1), True)),
    "no options": ("mixed_arguments", "Options", norm, lambda: (x(), x(1).detach(), False)),
    "states": ("mixed_arguments", "States", norm, lambda: (x(), 3)),
    "states without a number": ("mixed_arguments", "States", norm, lambda: (x(), 0)),
    "rest": ("mixed_arguments", "Rest", norm, lambda: (2.0, 2, x(), x(1), x(2).detach())),
    "rest with a tensor": ("mixed_arguments", "Rest", norm, lambda: (x(3).detach(), 1, x(), x(1).detach())),
    "states by name": ("states_by_name", "Fn", norm, lambda: (x(),)),
    "a dict of tensors": ("dict_display", "ByName", norm, lambda: (x(), x(1))),
    "no default": ("read_with_default", "WithDefault", norm, lambda: (x(), x(1).detach())),
    "no default, None": ("read_with_default", "WithDefault", norm, lambda: (x(), None)),
    "name of a module": ("name_of_a_module", "Named", norm, lambda: (x(), True)),
    "name of a module, unset": ("name_of_a_module", "Named", number, lambda: (x(), False)),
    "a forward without the factor": ("two_forwards_one_factor", "Plain", norm, lambda: (x(),)),
    "a forward with the factor": ("two_forwards_one_factor", "Scaled", norm, lambda: (x(),)),
    "no object": ("tensor_or_object", "Masked", norm, lambda: (x(), x(1).detach())),
    "a list": ("mixed_list", "Fn", norm, lambda: (x(), x(1), 3)),
    "copies": ("offloaded", "Offloaded", norm, lambda: (scaled, True, x(), 2.0, x(1).detach(), None)),
    "no copies": ("offloaded", "Offloaded", norm, lambda: (scaled, False, x(), 2.0, x(1), None)),
    "taken and cleared": ("taken_and_cleared", "Taken", norm, lambda: (x(), x(1).detach(), False)),
    "not cleared": ("taken_and_cleared", "Taken", norm, lambda: (x(), x(1).detach(), True)),
}


def scaled(value: Tensor, factor: float, shift: Tensor, nothing: None) -> Tensor:
    """A function of what the callers like."""
    assert nothing is None
    return value.exp() * factor + shift * value


def outcome(case: str, after: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Tensor | None], Any]:
    name, kind, kernel, make = CASES[case]
    for stub in ("kernels", "elsewhere"):
        module = types.ModuleType(stub)
        module.norm, module.gather = kernel, gather  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, stub, module)
    text = (DATA / "fix" / f"{name}{'.fixed' if after else ''}.py").read_text()
    arguments = make()
    torch.manual_seed(7)
    output = getattr(module_of(text), kind).apply(*arguments)
    node = output.grad_fn
    kept = [value for field in vars(node).values() for value in inside(field) if isinstance(value, Tensor)]
    leaves = [a for a in arguments if isinstance(a, Tensor) and a.requires_grad]
    weight = torch.linspace(1, 2, 9, dtype=torch.float64).reshape(3, 3)
    return [output.detach(), *torch.autograd.grad(output, leaves, weight, allow_unused=True)], kept


def inside(field: Any) -> list[Any]:
    """A value, or what a container holds."""
    values = field.values() if isinstance(field, dict) else field if isinstance(field, (list, tuple)) else [field]
    return list(values)


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_stay_and_ctx_holds_no_tensor(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = outcome(case, False, monkeypatch)
    after, kept = outcome(case, True, monkeypatch)
    assert len(before) == len(after)
    assert all(map(same, before, after))
    assert kept == []


def test_before_the_fix_ctx_holds_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above can fail."""
    assert outcome("a sum", False, monkeypatch)[1] != []


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("kind", ["Rows", "MaybeRows"])
def test_records_come_back_whole(kind: str, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def numbers(after: bool) -> tuple[list[Tensor | None], Any]:
        module = types.ModuleType("program")
        monkeypatch.setitem(sys.modules, "program", module)
        text = (DATA / "fix" / f"record{'.fixed' if after else ''}.py").read_text()
        exec(compile(text, "program.py", "exec"), module.__dict__)
        offsets = torch.arange(9, dtype=torch.float64).reshape(3, 3)
        layout = module.Layout(offsets, weights=offsets + 1 if weighted else None)
        arguments = [x(), x(1), layout, 0.5] if kind == "Rows" else [x(), layout]
        output = getattr(module, kind).apply(*arguments)
        held = output.grad_fn.layout
        leaves = [a for a in arguments if isinstance(a, Tensor)]
        grads = torch.autograd.grad(output, leaves, torch.ones_like(output), retain_graph=True)
        again = torch.autograd.grad(output, leaves, torch.ones_like(output))
        assert layout.offsets is offsets
        return [output.detach(), *grads, *again], held

    before, _ = numbers(after=False)
    after, held = numbers(after=True)
    assert all(map(same, before, after))
    assert held.offsets is None
    assert held.name == "rows"


def test_no_record_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("program")
    monkeypatch.setitem(sys.modules, "program", module)
    exec(compile((DATA / "fix" / "record.fixed.py").read_text(), "program.py", "exec"), module.__dict__)
    output = module.MaybeRows.apply(x())
    assert same(
        torch.autograd.grad(output.sum(), output.grad_fn.next_functions[0][0].variable)[0], torch.ones_like(x())
    )


@pytest.mark.parametrize("after", [False, True])
def test_an_object_beside_tensors_stays_where_it_is(after: bool) -> None:
    module = module_of((DATA / "fix" / f"tensor_or_object{'.fixed' if after else ''}.py").read_text())
    mask, leaf = module.Mask(3.0), x()
    output = module.Masked.apply(leaf, mask)
    assert output.grad_fn.mask is mask
    assert same(torch.autograd.grad(output.sum(), leaf)[0], torch.full((3, 3), 3.0, dtype=torch.float64))


def test_sparse_tensors_come_back_sparse() -> None:
    def numbers(after: bool) -> list[Tensor]:
        module = module_of((DATA / "fix" / f"sparse{'.fixed' if after else ''}.py").read_text())
        sparse, dense = x().detach().relu().to_sparse().requires_grad_(), x(1)
        output = module.Sparse.apply(sparse, dense)
        return [output.detach(), *(g.to_dense() for g in torch.autograd.grad(output.sum(), (sparse, dense)))]

    assert all(map(same, numbers(False), numbers(True)))
