"""The mixture of candidate operations."""

from __future__ import annotations

import pytest
import torch

from cachelint.runtime.harness import by_autograd, plain, relative_error, worst
from cachelint.runtime.layers.activations.gelu import Gelu
from cachelint.runtime.layers.activations.softmax import Softmax
from cachelint.runtime.layers.core.dense import Dense
from cachelint.runtime.layers.core.linear import Linear
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.nas.darts_layer import DARTSLayer


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_any_number_of_candidates(count: int, temperature: float) -> None:
    def make(seed: int) -> tuple[DARTSLayer, tuple[torch.Tensor]]:
        init = Init.seeded(seed, dtype=torch.float64)
        found = [Dense(3, 3, activation=Gelu(), init=init), Softmax(), Linear(3, 3, init=init), Gelu()]
        node = DARTSLayer(found[:count], temperature=temperature, init=init)
        init.jitter(node)
        return node, (init.normal(2, 5, 3),)

    assert worst(plain(make), by_autograd(make)) < 1e-11


def test_no_candidate_is_refused() -> None:
    with pytest.raises(ValueError, match="candidate"):
        DARTSLayer([])


def test_an_alpha_that_is_stepped_before_backward_changes_nothing() -> None:
    init = Init.seeded(0, dtype=torch.float64)
    node = DARTSLayer([Linear(3, 3, init=init), Gelu()], init=init)
    x, grad = init.normal(2, 3), init.normal(2, 3)
    node.forward(x)
    (wanted,) = node.backward(grad, x)
    alpha = node.alpha.grad
    assert alpha is not None
    before = alpha.clone()
    node.forward(x)
    node.zero_grad()
    node.alpha.value.add_(torch.tensor([3.0, -1.0]))
    assert torch.equal(node.backward(grad, x)[0], wanted)
    assert torch.equal(alpha, before)


def test_a_candidate_gets_its_share_of_the_gradient() -> None:
    init = Init.seeded(0, dtype=torch.float64)
    candidate = Linear(3, 3, init=init)
    node = DARTSLayer([candidate, Gelu()], init=init)
    node.alpha.value.copy_(torch.tensor([2.0, 0.0]))
    x, grad = init.normal(2, 3), init.normal(2, 3)
    node.forward(x)
    node.backward(grad, x)
    share = torch.softmax(node.alpha.value, 0)[0]
    assert relative_error(candidate.weight.grad, share * (x.mT @ grad)) < 1e-14
