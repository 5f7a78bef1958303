"""The low-rank adapter."""

from __future__ import annotations

import pytest
import torch

from cachelint.runtime.harness import by_autograd, plain, worst
from cachelint.runtime.layers.activations.gelu import Gelu
from cachelint.runtime.layers.core.dense import Dense
from cachelint.runtime.layers.core.linear import Linear
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.lora.lora_linear import LoraLinear


def test_a_fresh_adapter_changes_nothing_and_learns_b_first() -> None:
    base, x, grad = Linear(5, 3), torch.rand(2, 5), torch.rand(2, 3)
    node = LoraLinear(base, 5, 3, rank=2)
    assert torch.equal(node.forward(x), base.forward(x))
    node.backward(grad, x)
    assert node.a.grad is not None
    assert node.b.grad is not None
    assert not node.a.grad.any()
    assert node.b.grad.any()


@pytest.mark.parametrize(("stabilised", "scale"), [(False, 4.0), (True, 8.0)])
def test_the_scale_is_that_of_the_paper(stabilised: bool, scale: float) -> None:
    assert LoraLinear(Linear(5, 3), 5, 3, rank=4, alpha=16.0, rank_stabilised=stabilised).scale == scale


@pytest.mark.parametrize("lead", [(), (1,), (2, 3), (2, 1, 3)])
def test_any_base_and_any_leading_axes(lead: tuple[int, ...]) -> None:
    def make(seed: int) -> tuple[LoraLinear, tuple[torch.Tensor]]:
        init = Init.seeded(seed, dtype=torch.float64)
        node = LoraLinear(Dense(5, 3, activation=Gelu(), init=init), 5, 3, rank=2, init=init)
        init.jitter(node)
        return node, (init.normal(*lead, 5),)

    assert worst(plain(make), by_autograd(make)) < 1e-12
