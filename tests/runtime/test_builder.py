"""Building: order, names, cycles, and which saver each layer gets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toy_layers import Add, Exp, Scale

from cachelint.runtime import Builder, CycleError, GraphError, Node, SaverAware


class Wide(Node):
    """Any number of inputs, summed."""

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.stack(inputs).sum(0)

    def backward(self, grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(grad for _ in inputs)


@st.composite
def dags(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """For each of up to nine nodes, the earlier nodes that it reads."""
    count = draw(st.integers(1, 9))
    return [tuple(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else () for i in range(count)]


@given(dags(), st.randoms(use_true_random=False))
def test_any_order_of_adding_gives_a_topological_order(dag: list[tuple[int, ...]], random: Callable[..., None]) -> None:
    order = list(range(len(dag)))
    random.shuffle(order)  # type: ignore[attr-defined]
    builder = Builder()
    builder.input("x")
    for i in order:
        builder.add(Wide(), "x", *(f"n{j}" for j in dag[i]), name=f"n{i}")
    graph = builder.build(f"n{len(dag) - 1}")
    names = [vertex.name for vertex in graph.plan.vertices]
    assert sorted(names) == sorted(f"n{i}" for i in range(len(dag)))
    for i, needs in enumerate(dag):
        assert all(names.index(f"n{j}") < names.index(f"n{i}") for j in needs)
    paths = [1] * len(dag)
    for i, needs in enumerate(dag):
        paths[i] = 1 + sum(paths[j] for j in needs)
    x = torch.tensor([3.0])
    assert graph.forward(x).tolist() == [3.0 * paths[-1]]
    assert graph.backward() == (torch.tensor([float(paths[-1])]),)


def test_equal_programs_get_equal_orders() -> None:
    def names() -> list[str]:
        builder = Builder()
        x = builder.input("x")
        a, b = builder.add(Exp(), x), builder.add(Exp(), x)
        builder.add(Add(), b, a)
        return [vertex.name for vertex in builder.build().plan.vertices]

    assert names() == names() == ["exp1", "exp2", "add1"]


def test_a_cycle_is_named_by_its_nodes() -> None:
    builder = Builder()
    builder.input("x")
    builder.add(Add(), "x", "c", name="a")
    builder.add(Exp(), "a", name="b")
    builder.add(Exp(), "b", name="c")
    builder.add(Exp(), "c", name="after")
    with pytest.raises(CycleError, match=r"cycle: a -> c -> b -> a") as caught:
        builder.build()
    assert caught.value.path == ("a", "c", "b", "a")


def test_a_node_that_reads_itself_is_a_cycle() -> None:
    builder = Builder()
    builder.add(Exp(), "me", name="me")
    with pytest.raises(CycleError, match="me -> me"):
        builder.build()


def test_a_deep_chain_needs_no_deep_stack() -> None:
    builder = Builder()
    builder.input("x")
    for i in range(3000):
        builder.add(Wide(), f"n{i + 1}" if i < 2999 else "x", name=f"n{i}")
    assert builder.build("n0").plan.vertices[-1].name == "n0"


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (lambda b: None, "the graph has no node"),
        (lambda b: b.add(Exp(), "y", name="e"), r"node 'e' \(Exp\) reads 'y', which is neither an input nor a node"),
        (lambda b: (b.input("x"), b.input("x")), "the name 'x' is taken"),
        (lambda b: (b.input("x"), b.add(Exp(), "x", name="x")), "the name 'x' is taken"),
    ],
)
def test_mistakes_are_named(fill: Callable[[Builder], object], message: str) -> None:
    def build() -> None:
        builder = Builder()
        fill(builder)
        builder.build()

    with pytest.raises(GraphError, match=message):
        build()


def test_an_unknown_output_is_named() -> None:
    builder = Builder()
    builder.add(Exp(), builder.input("x"))
    with pytest.raises(GraphError, match="the output reads 'y'"):
        builder.build("y")


def test_one_instance_serves_one_place() -> None:
    builder, layer = Builder(), Exp()
    x = builder.input("x")
    builder.add(layer, x, name="first")
    with pytest.raises(GraphError, match=r"node 'first' \(Exp\) is in the graph already"):
        builder.add(layer, x)


# ---- wiring


class Plain(Node):
    """A composite that knows nothing of savers, over children in every kind of place."""

    def __init__(self) -> None:
        self.attribute = Exp()
        self.listed = [Exp(), [Exp()]]
        self.named = {"a": Exp(), 1: (Exp(),)}
        self.deep = Deep()
        self.same = self.attribute

    def forward(self, x: Tensor) -> Tensor:
        layers = [self.attribute, self.listed[0], self.listed[1][0], self.named["a"], self.named[1][0]]  # type: ignore
        for layer in [*layers, self.deep.inner.layer]:
            x = layer.forward(x) * 0.1
        return x

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        return (grad,)


class Deep(Node):
    def __init__(self) -> None:
        self.inner = Deeper()


class Deeper(Node):
    def __init__(self) -> None:
        self.layer = Exp()


class Counting(SaverAware, Node):
    def __init__(self) -> None:
        self.calls = 0

    def set_saver(self, saver: object) -> None:
        self.calls += 1
        super().set_saver(saver)  # type: ignore[arg-type]


def test_every_saver_aware_child_is_wired_to_its_own_node() -> None:
    builder = Builder()
    x = builder.input("x")
    h = builder.add(Plain(), x, name="first")
    builder.add(Plain(), h, name="second")
    graph = builder.build()
    graph.forward(torch.ones(2))
    assert len(graph.saved("first")) == 6
    assert len(graph.saved("second")) == 6
    node = graph.node("first")
    assert isinstance(node, Plain)
    assert graph.saved("first")[0] is node.attribute.output
    assert graph.saved("first")[5] is node.deep.inner.layer.output


def test_each_child_is_wired_once() -> None:
    class Holder(Node):
        def __init__(self) -> None:
            self.a = Counting()
            self.b = [self.a, {"c": self.a}]

    holder = Holder()
    builder = Builder()
    builder.add(holder, builder.input("x"))
    builder.build()
    assert holder.a.calls == 1


def test_a_child_made_later_can_take_the_saver_of_its_parent() -> None:
    class Lazy(SaverAware, Node):
        inner: Exp | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.inner is None:
                self.inner = Exp()
                self.inner.set_saver(self.saver)
            return self.inner.forward(x)

        def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
            assert self.inner is not None
            result: tuple[Tensor] = self.inner.backward(grad, x)
            return result

    builder = Builder()
    builder.add(Lazy(), builder.input("x"), name="lazy")
    graph = builder.build()
    graph.forward(torch.ones(2))
    assert len(graph.saved("lazy")) == 1


def test_what_a_shared_child_saves_belongs_to_the_node_that_runs() -> None:
    class Uses(Node):
        def __init__(self, shared: Exp) -> None:
            self.shared = shared

        def forward(self, x: Tensor) -> Tensor:
            return self.shared.forward(x)

        def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
            return (grad * x.exp(),)

    shared = Exp()
    builder = Builder()
    x = builder.input("x")
    a = builder.add(Uses(shared), x, name="a")
    builder.add(Uses(shared), a, name="b")
    graph = builder.build()
    y = graph.forward(torch.zeros(1))
    assert graph.saved("a")[0].tolist() == [1.0]
    assert graph.saved("b")[0] is y


def test_the_last_graph_that_was_built_has_the_node() -> None:
    layer = Exp()
    first, second = Builder(), Builder()
    first.add(layer, first.input("x"), name="e")
    second.add(layer, second.input("x"), name="e")
    one, two = first.build(), second.build()
    two.forward(torch.ones(1))
    assert len(one.sets) == 0
    assert len(two.sets) == 1


def test_parameters_of_the_graph_have_the_names_of_its_nodes() -> None:
    builder = Builder()
    x = builder.input("x")
    tied = Scale(torch.ones(1))
    first = builder.add(tied, x, name="first")
    other = Scale(torch.ones(1))
    other.w = tied.w
    builder.add(other, first, name="second")
    builder.add(Scale(torch.ones(1)), x, name="third")
    graph = builder.build()
    assert [name for name, _ in graph.named_parameters()] == ["first.w", "third.w"]
