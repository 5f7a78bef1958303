"""The pairs of ``tests/data/fix`` run: the same numbers before and after, forward-mode and torch.func included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.fix.differential import module_of, same
from tests.fix.test_pairs import DATA


def t(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=torch.float64, generator=generator).add_(0.1).requires_grad_()


def square(seed: int = 0) -> Tensor:
    return t(3, 3, seed=seed)


RUNS: dict[str, tuple[str, Callable[[], tuple[Any, ...]]]] = {
    "both": ("Both", lambda: (square(), square(1))),
    "chain": ("Chain", lambda: (t(2, 4).detach().float().requires_grad_(), 1e-5)),
    "clash": ("Clash", lambda: (square(), square(1))),
    "cleared": ("Cleared", lambda: (square(), square(1))),
    "collect": ("Collect", lambda: (square(), square(1))),
    "delete": ("Delete", lambda: (square(), square(1))),
    "dict": ("Dict", lambda: (square(), 3)),
    "dict_call": ("DictCall", lambda: (square(), square(1), 2)),
    "early": ("Early", lambda: (square(), square(1))),
    "helper_unpacks": ("HelperUnpacks", lambda: (square(), square(1))),
    "helpers": ("Helpers", lambda: (square(), square(1), 0.5)),
    "indexed": ("Indexed", lambda: (square(), square(1))),
    "jvp": ("Jvp", lambda: (square(), square(1))),
    "list_grown": ("ListGrown", lambda: (square(), square(1), 3)),
    "literal": ("Literal", lambda: (square(), square(1))),
    "loop": ("Loop", lambda: (square(), 2)),
    "mask": ("Mask", lambda: (square(),)),
    "match": ("Match", lambda: (square(), "exp")),
    "multi": ("Multi", lambda: (square(), square(1))),
    "nested": ("Nested", lambda: (square(), len)),
    "one_line": ("OneLine", lambda: (square(),)),
    "optional": ("Optional", lambda: (square(), square(1))),
    "random": ("Random", lambda: (square(), 0.3)),
    "reassigned": ("Reassigned", lambda: (square(),)),
    "run": ("Run", lambda: (2, square(), square(1))),
    "run_beside_run": ("RunBesideRun", lambda: (square(), square(1), square(2))),
    "run_in_a_helper": ("RunInAHelper", lambda: (square(), square(1))),
    "long_lists": ("LongLists", lambda: (square(), square(1), square(2), False)),
    "spread_out": ("SpreadOut", lambda: (square(), square(1))),
    "run_on_some_paths": ("Conditional", lambda: (square(), square(1), True)),
    "setup": ("Setup", lambda: (square(), square(1), 2)),
    "shared_forward": ("Left", lambda: (square(),)),
    "star_last": ("StarLast", lambda: (square(), square(1), square(2))),
    "starred": ("Starred", lambda: (square(), square(1), square(2))),
    "statistic": ("Statistic", lambda: (square(),)),
    "tuple_mix": ("TupleMix", lambda: (square(), square(1), 2)),
    "tuple_whole": ("TupleWhole", lambda: (square(), square(1), 2)),
    "twice": ("Twice", lambda: (square(), square(1))),
    "two_inputs": ("TwoInputs", lambda: (square(), square(1))),
    "two_returns": ("TwoReturns", lambda: (square(), False)),
    "two_runs": ("TwoRuns", lambda: (square(), square(1), square(2))),
    "walrus": ("Walrus", lambda: (square(), square(1))),
    "with_grads": ("WithGrads", lambda: (square(), square(1))),
}


def numbers(name: str, after: bool) -> list[Tensor | None]:
    kind, make = RUNS[name]
    path = DATA / "fix" / f"{name}{'.fixed' if after else ''}.py"
    function = getattr(module_of(path.read_text()), kind)
    arguments = make()
    torch.manual_seed(5)
    output = function.apply(*arguments)
    leaves = [a for a in arguments if isinstance(a, Tensor)]
    grads = torch.autograd.grad(
        output, leaves, torch.linspace(1, 2, output.numel()).reshape(output.shape).to(output), allow_unused=True
    )
    return [output, *grads]


@pytest.mark.parametrize("name", RUNS)
def test_the_numbers_stay(name: str) -> None:
    before, after = numbers(name, after=False), numbers(name, after=True)
    assert len(before) == len(after)
    assert all(map(same, before, after))


def test_forward_mode_stays() -> None:
    def derivative(after: bool) -> tuple[Tensor, Tensor]:
        path = DATA / "fix" / f"jvp{'.fixed' if after else ''}.py"
        function = module_of(path.read_text()).Jvp
        with torch.autograd.forward_ad.dual_level():
            x = torch.autograd.forward_ad.make_dual(square().detach(), square(3).detach())
            w = torch.autograd.forward_ad.make_dual(square(1).detach(), square(4).detach())
            y = torch.autograd.forward_ad.unpack_dual(function.apply(x, w))
        return y.primal, y.tangent

    assert all(map(same, derivative(False), derivative(True)))


def test_both_modes_at_once() -> None:
    """save_for_forward must not hide what backward unpacks."""
    function = module_of((DATA / "fix" / "jvp.fixed.py").read_text()).Jvp
    assert torch.autograd.gradcheck(function.apply, (square(), square(1)), check_forward_ad=True)


def test_functions_with_setup_context_work_under_torch_func() -> None:
    function = module_of((DATA / "fix" / "setup.fixed.py").read_text()).Setup
    x, w = square().detach(), square(1).detach()
    got = torch.func.grad(lambda a: function.apply(a, w, 2).sum())(x)
    expected = torch.func.grad(lambda a: (torch.tanh(a * w) * 2).sum())(x)
    assert torch.allclose(got, expected)


@pytest.mark.parametrize("name", ["chain", "twice"])
def test_what_is_recomputed_differentiates_twice(name: str) -> None:
    """The second derivative was silently wrong before: the value was made without a graph."""

    def second(after: bool) -> Tensor:
        kind, make = RUNS[name]
        path = DATA / "fix" / f"{name}{'.fixed' if after else ''}.py"
        function = getattr(module_of(path.read_text()), kind)
        x, *others = make()
        (grad,) = torch.autograd.grad(function.apply(x, *others).sum(), x, create_graph=True)
        return torch.autograd.grad(grad.sum(), x, allow_unused=True)[0] if grad.requires_grad else torch.zeros_like(x)

    before, after = second(False), second(True)
    assert not torch.allclose(before if before is not None else torch.zeros_like(after), after)
