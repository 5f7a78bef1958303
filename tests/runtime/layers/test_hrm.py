"""The two modules of the hierarchical model over several steps."""

from __future__ import annotations

import pytest
import torch

from cachelint.runtime import Arena, Builder
from cachelint.runtime.harness import relative_error
from cachelint.runtime.layers.core.linear import Linear
from cachelint.runtime.layers.hrm.h_module import HModule
from cachelint.runtime.layers.hrm.l_module import LModule
from cachelint.runtime.layers.init import Init


@pytest.mark.parametrize("shape", [(2, 4), (2, 3, 4)])
def test_the_state_of_each_step_enters_the_next(shape: tuple[int, ...]) -> None:
    init = Init.seeded(0, dtype=torch.float64)
    inner = Linear(4, 4, init=init)
    xs, grads = [init.normal(*shape) for _ in range(3)], [init.normal(*shape) for _ in range(3)]
    slab = Arena(1 << 16, ("cpu",), poison=True)
    builder = Builder(slab)
    graph = builder.build(builder.add(HModule(inner), builder.input("l_state")))
    weight, state, total = inner.weight.value, torch.zeros(shape, dtype=torch.float64), torch.zeros(4, 4).double()
    for x, grad in zip(xs, grads, strict=True):
        total += (x + state).reshape(-1, 4).mT @ grad.reshape(-1, 4)
        state = (x + state) @ weight
        assert relative_error(graph.forward(x), state) < 1e-14
        slab.reset()
        assert relative_error(graph.backward(grad)[0], grad @ weight.mT) < 1e-14
        slab.reset()
    assert relative_error(inner.weight.grad, total) < 1e-14


def test_the_state_can_be_set_and_reset() -> None:
    node, x = HModule(Linear(4, 4)), torch.rand(2, 4)
    first = node.forward(x)
    node.reset_state(torch.ones(2, 4))
    assert not torch.equal(node.forward(x), first)
    node.reset_state()
    assert torch.equal(node.forward(x), first)


def test_another_shape_asks_for_a_reset() -> None:
    node = HModule(Linear(4, 4))
    node.forward(torch.rand(2, 4))
    with pytest.raises(ValueError, match="reset_state"):
        node.forward(torch.rand(3, 4))


def test_the_state_moves_with_the_layer() -> None:
    node = HModule(Linear(4, 4))
    node.forward(torch.rand(2, 4))
    node.to(dtype=torch.float64)
    assert node.forward(torch.rand(2, 4, dtype=torch.float64)).dtype is torch.float64


def test_the_sum_of_the_fast_module_is_that_of_its_live_inputs() -> None:
    inner = Linear(4, 4)
    h, x, grad = torch.rand(2, 4), torch.rand(2, 4), torch.rand(2, 4)
    node = LModule(inner)
    node.forward(h, x)
    h.zero_()  # overwritten before backward
    dh, dx = node.backward(grad, h, x)
    assert torch.equal(dh, dx)
    assert torch.allclose(inner.weight.grad, x.mT @ grad) if inner.weight.grad is not None else False
