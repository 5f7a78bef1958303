"""Nodes and parameters: what a layer is made of."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from toy_layers import Add, Exp, Scale

from cachelint.runtime import Arena, Node, Parameter, Persistent, RecordingSaver
from cachelint.runtime.span import span_of
from cachelint.runtime.walk import walk


@dataclass
class Options:
    table: Tensor
    child: Exp


@dataclass(frozen=True)
class Frozen:
    table: Tensor
    label: str


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


class Composite(Node):
    def __init__(self) -> None:
        self.first = Scale(torch.ones(3))
        self.more = [Scale(torch.ones(3)), Exp()]
        self.named = {"a": Exp(), "b": (Add(), self.first)}
        self.options = Options(torch.ones(2), Exp())
        self.frozen = Frozen(torch.ones(2), "label")
        self.pair = Pair(torch.ones(1), torch.ones(1))
        self.ids = torch.arange(3)
        self.tied = Parameter(torch.ones(2), "tied")
        self.again = self.tied


def test_children_are_reached_through_attributes_lists_tuples_and_dicts_once_each() -> None:
    node = Composite()
    assert [path for path, _ in node.named_children()] == [
        "first",
        "more[0]",
        "more[1]",
        "named['a']",
        "named['b'][0]",
        "options.child",
    ]


def test_children_of_children_are_not_children_but_nodes() -> None:
    outer = Composite()
    outer.first.inner = Exp()  # type: ignore[attr-defined]
    assert all(child is not outer.first.inner for child in outer.children())  # type: ignore[attr-defined]
    assert any(node is outer.first.inner for node in outer.nodes())  # type: ignore[attr-defined]


def test_a_child_that_holds_its_parent_does_not_loop() -> None:
    outer = Composite()
    outer.first.parent = outer  # type: ignore[attr-defined]
    assert len(list(outer.nodes())) == 7
    assert len(list(outer.parameters())) == 3


def test_parameters_have_paths_and_a_tied_one_counts_once() -> None:
    assert [path for path, _ in Composite().named_parameters()] == ["first.w", "more[0].w", "tied"]


def test_train_and_eval_reach_every_node() -> None:
    node = Composite()
    node.eval()
    assert not any(each.training for each in node.nodes())
    assert node.train() is node
    assert all(each.training for each in node.nodes())


def test_to_casts_floating_point_tensors_wherever_they_are() -> None:
    node = Composite().to(dtype=torch.float64)
    floats = [v for _, v in walk(node) if isinstance(v, Tensor) and v.is_floating_point()]
    assert len(floats) == 7
    assert {tensor.dtype for tensor in floats} == {torch.float64}
    assert node.ids.dtype == torch.int64
    assert node.frozen.label == "label"
    assert isinstance(node.pair, Pair)
    assert node.again is node.tied


def test_to_moves_to_the_device(device: str) -> None:
    node = Composite().to(device)
    assert {v.device.type for _, v in walk(node) if isinstance(v, Tensor)} == {device}


def test_to_moves_what_is_persistent_and_empties_what_watches_a_weight() -> None:
    class Stateful(Scale):
        def __init__(self) -> None:
            super().__init__(torch.ones(3).requires_grad_())
            self.state = Persistent()
            self.cache = Persistent(self.w)

    node = Stateful()
    node.state.set(torch.ones(2))
    node.cache.set(torch.ones(2))
    node.to(dtype=torch.float64)
    state = node.state.get()
    assert state is not None
    assert state.dtype is torch.float64
    assert node.cache.get() is None
    assert node.w.value.requires_grad
    assert node.w.value.is_leaf


def test_the_gradient_is_one_buffer_for_life() -> None:
    parameter = Parameter(torch.ones(2, 3))
    parameter.accumulate(torch.full((2, 3), 2.0))
    assert parameter.grad is not None
    address = parameter.grad.data_ptr()
    parameter.accumulate(torch.full((2, 3), 3.0))
    assert parameter.grad.tolist() == [[5.0] * 3] * 2
    parameter.zero_grad()
    assert parameter.grad.tolist() == [[0.0] * 3] * 2
    assert parameter.grad.data_ptr() == address


def test_accumulate_does_not_alias_what_it_was_given() -> None:
    parameter, grad = Parameter(torch.ones(2)), torch.ones(2)
    parameter.accumulate(grad)
    parameter.accumulate(grad)
    assert grad.tolist() == [1.0, 1.0]
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [2.0, 2.0]


def test_accumulate_refuses_a_gradient_that_would_broadcast() -> None:
    with pytest.raises(ValueError, match=r"gradient of parameter w has shape \(3,\), the parameter has \(2, 3\)"):
        Parameter(torch.ones(2, 3), "w").accumulate(torch.ones(3))


def test_values_and_gradients_never_move_into_the_arena(device: str) -> None:
    arena = Arena(1 << 16, (device,), poison=True)
    with arena.place():
        parameter = Parameter(torch.ones(4, device=device))
        parameter.accumulate(torch.full((4,), 2.0, device=device))
        parameter.zero_grad()
        parameter.accumulate(torch.full((4,), 3.0, device=device))
    arena.reset()
    assert parameter.grad is not None
    assert span_of(parameter.value) is None
    assert span_of(parameter.grad) is None
    assert parameter.value.tolist() == [1.0] * 4
    assert parameter.grad.tolist() == [3.0] * 4


def test_accumulate_can_be_recorded_for_second_derivatives() -> None:
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    node = Scale(torch.tensor([5.0, 7.0]))
    node.backward(torch.ones(2), x * x)
    assert node.w.grad is not None
    (second,) = torch.autograd.grad(node.w.grad.sum(), x)
    assert second.tolist() == [4.0, 6.0]
    node.zero_grad()
    assert not node.w.grad.requires_grad


def test_a_layer_without_a_saver_gives_the_same_numbers() -> None:
    x = torch.randn(3, generator=torch.Generator().manual_seed(0))
    bare, wired, saver = Exp(), Exp(), RecordingSaver()
    wired.set_saver(saver)
    assert torch.equal(bare.forward(x), wired.forward(x))
    assert torch.equal(bare.backward(torch.ones(3), x)[0], wired.backward(torch.ones(3), x)[0])
    assert [id(tensor) for tensor in saver.tensors] == [id(wired.output)]
    assert bare.saver is None


def test_the_saver_ignores_none_and_keeps_order_and_duplicates() -> None:
    layer, saver, a, b = Exp(), RecordingSaver(), torch.ones(1), torch.ones(2)
    layer.set_saver(saver)
    layer.save_for_backward(None, b, None, a, b)
    assert [id(tensor) for tensor in saver.tensors] == [id(b), id(a), id(b)]
    layer.set_saver(None)
    layer.save_for_backward(a)
    assert len(saver.tensors) == 3


def test_a_copy_of_a_layer_is_outside_the_graph() -> None:
    layer = Exp()
    layer.set_saver(RecordingSaver())
    layer.forward(torch.ones(2))
    twin = copy.deepcopy(layer)
    assert twin.saver is None
    assert twin.output is not layer.output
    assert layer.saver is not None


def test_a_copy_of_a_persistent_is_empty_and_watches_the_copied_weight() -> None:
    layer = Scale(torch.ones(2))
    layer.cache = Persistent(layer.w)  # type: ignore[attr-defined]
    layer.cache.set(torch.ones(2))  # type: ignore[attr-defined]
    twin = copy.deepcopy(layer)
    twin_cache: Persistent = twin.cache  # type: ignore[attr-defined]
    assert twin_cache.get() is None
    twin_cache.set(torch.ones(1))
    layer.w.value.add_(1)
    assert twin_cache.get() is not None
    twin.w.value.add_(1)
    assert twin_cache.get() is None


def test_a_node_without_its_methods_says_so() -> None:
    class Empty(Node):
        pass

    with pytest.raises(NotImplementedError, match="Empty has no forward"):
        Empty()(torch.ones(1))
    with pytest.raises(NotImplementedError, match="Empty has no backward"):
        Empty().backward(torch.ones(1))
