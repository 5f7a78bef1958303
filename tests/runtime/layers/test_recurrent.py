"""The recurrent layer over several steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cachelint.runtime import Arena, Builder
from cachelint.runtime.harness import relative_error
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.recurrent.simple_rnn import SimpleRNN


def unrolled(node: SimpleRNN, xs: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Outputs, input gradients and summed parameter gradients of steps whose state is cut off from its past."""
    weights = [p.value.clone().requires_grad_() for p in (node.input.weight, node.recurrent.weight, node.bias)]
    state = torch.zeros(xs[0].shape[0], weights[1].shape[0], dtype=xs[0].dtype)
    outputs, dxs, total = [], [], [torch.zeros_like(w) for w in weights]
    for x, grad in zip(xs, grads, strict=True):
        leaf = x.clone().requires_grad_()
        y = torch.tanh(leaf @ weights[0] + state @ weights[1] + weights[2])
        dx, *dweights = torch.autograd.grad(y, [leaf, *weights], grad)
        state = y.detach()
        outputs.append(state)
        dxs.append(dx)
        total = [a + b for a, b in zip(total, dweights, strict=True)]
    return outputs, dxs, total


@pytest.mark.parametrize("arena", [False, True])
def test_five_steps_are_those_of_truncated_backpropagation(arena: bool) -> None:
    init = Init.seeded(0, dtype=torch.float64)
    node = SimpleRNN(3, 4, init=init)
    xs, grads = [init.normal(2, 3) for _ in range(5)], [init.normal(2, 4) for _ in range(5)]
    outputs, dxs, total = unrolled(node, xs, grads)

    slab = Arena(1 << 16, ("cpu",), poison=True) if arena else None
    builder = Builder(slab)
    graph = builder.build(builder.add(node, builder.input("x")))
    for x, grad, output, dx in zip(xs, grads, outputs, dxs, strict=True):
        assert relative_error(graph.forward(x), output) < 1e-14
        if slab is not None:
            slab.reset()
        assert relative_error(graph.backward(grad)[0], dx) < 1e-14
        if slab is not None:
            slab.reset()  # the state outlives the step
            assert slab.stats().pins == 1
    for parameter, wanted in zip((node.input.weight, node.recurrent.weight, node.bias), total, strict=True):
        assert relative_error(parameter.grad, wanted) < 1e-14
    node.reset_state()
    assert slab is None or slab.stats().pins == 0


def test_reset_starts_over() -> None:
    node, x = SimpleRNN(3, 2), torch.rand(2, 3)
    first = node.forward(x)
    assert not torch.equal(node.forward(x), first)
    node.reset_state()
    assert torch.equal(node.forward(x), first)
    node.reset_state(torch.ones(2, 2))
    assert not torch.equal(node.forward(x), first)


def test_another_batch_size_asks_for_a_reset() -> None:
    node = SimpleRNN(3, 2)
    node.forward(torch.rand(2, 3))
    with pytest.raises(ValueError, match="reset_state"):
        node.forward(torch.rand(4, 3))
    node.reset_state()
    assert node.forward(torch.rand(4, 3)).shape == (4, 2)


def test_the_state_moves_with_the_layer() -> None:
    node = SimpleRNN(3, 2)
    node.forward(torch.rand(2, 3))
    node.to(dtype=torch.float64)
    assert node.forward(torch.rand(2, 3, dtype=torch.float64)).dtype is torch.float64


def test_a_given_state_gets_its_gradient() -> None:
    node: Any = SimpleRNN(3, 2, init=Init.seeded(0, dtype=torch.float64))
    x, hidden = torch.rand(2, 3, dtype=torch.float64), torch.rand(2, 2, dtype=torch.float64)
    y = node.forward(x, hidden)
    dhidden = node.backward(torch.ones_like(y), x, hidden)[1]
    assert torch.allclose(dhidden, (1 - y.square()) @ node.recurrent.weight.value.mT)
