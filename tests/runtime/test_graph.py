"""Forward, backward, and how long what lies between them lives."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from toy_layers import Add, Exp, Failing, Halves, LeakyExp, Mul, Scale, Sines, by_autograd

from cachelint.runtime import (
    Arena,
    Builder,
    GradientError,
    Graph,
    GraphError,
    Node,
    NodeError,
    RuntimeContractError,
    ShapeError,
    UseAfterReset,
)


def seeded(*shape: int, seed: int = 0, device: str = "cpu") -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(device) * 0.5


def diamond(arena: Arena | None = None) -> Graph:
    """``e = exp(x); y = e * sines(e) + e``: e fans out to three consumers."""
    builder = Builder(arena)
    x = builder.input("x", (None, 3))
    e = builder.add(Exp(), x, name="e")
    product = builder.add(Mul(), e, builder.add(Sines(), e, name="s"), name="m")
    return builder.build(builder.add(Add(), product, e, name="y"))


def diamond_formula(x: Tensor) -> Tensor:
    e = x.exp()
    return e * (e.sin() + (2 * e).sin()) + e


def close(a: Tensor | None, b: Tensor) -> bool:
    assert a is not None
    return torch.allclose(a, b, rtol=1e-12, atol=1e-14)


def run(graph: Graph, parallel: bool, *inputs: Tensor) -> Any:
    return graph.parallel_forward(*inputs) if parallel else graph.forward(*inputs)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("with_arena", [False, True])
def test_gradients_are_summed_over_fan_out(device: str, parallel: bool, with_arena: bool) -> None:
    graph = diamond(Arena(1 << 16, (device,), poison=True) if with_arena else None)
    for seed in range(3):
        x = seeded(4, 3, seed=seed, device=device)
        y = run(graph, parallel, x)
        assert close(y, diamond_formula(x))
        grad = seeded(4, 3, seed=seed + 10, device=device)
        (dx,) = graph.backward(grad)
        assert close(dx, by_autograd(diamond_formula, x, grad=grad)[0])


def test_one_tensor_handed_to_two_inputs_is_not_added_to_in_place() -> None:
    builder = Builder()
    x = builder.input("x")
    s = builder.add(Add(), x, x, name="s")
    graph = builder.build(builder.add(Add(), s, x))
    graph.forward(torch.ones(2))
    grad = torch.ones(2)
    assert [g.tolist() for g in graph.backward(grad) if g is not None] == [[3.0, 3.0]]
    assert grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_a_node_with_two_results(used: tuple[int, ...]) -> None:
    builder = Builder()
    halves = builder.add(Halves(), builder.input("x"), name="h")
    ends = [builder.add(Exp(), halves[i]) for i in used]
    graph = builder.build(*ends)
    x = seeded(2, 6)
    y = graph.forward(x)
    outputs = (y,) if len(used) == 1 else y
    (dx,) = graph.backward(*[torch.ones_like(o) for o in outputs])
    want = torch.cat([x.chunk(2, -1)[i].exp() if i in used else torch.zeros(2, 3) for i in (0, 1)], -1)
    assert close(dx, want)


def test_parameters_add_up_over_backwards() -> None:
    builder = Builder()
    graph = builder.build(builder.add(Scale(torch.tensor([2.0, 3.0])), builder.input("x"), name="w"))
    for _ in range(2):
        graph.forward(torch.tensor([[5.0, 7.0]]))
        graph.backward(torch.ones(1, 2))
    (parameter,) = graph.parameters()
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [10.0, 14.0]
    graph.zero_grad()
    assert parameter.grad.tolist() == [0.0, 0.0]


def test_an_input_that_nobody_reads_and_a_node_that_gets_no_gradient() -> None:
    builder = Builder()
    x = builder.input("x")
    builder.input("unused")
    builder.add(Failing("backward"), x, name="never asked")
    graph = builder.build(builder.add(Exp(), x))
    graph.forward(torch.ones(1), torch.ones(1))
    assert len(graph.saved("never asked")) == 2
    dx, unused = graph.backward()
    assert dx is not None
    assert unused is None
    assert len(graph.sets) == 0


def test_none_as_the_gradient_of_an_output() -> None:
    builder = Builder()
    x = builder.input("x")
    graph = builder.build(builder.add(Exp(), x), builder.add(Sines(), x))
    graph.forward(torch.zeros(2))
    assert graph.backward(torch.ones(2), None)[0].tolist() == [1.0, 1.0]  # type: ignore[union-attr]
    graph.forward(torch.zeros(2))
    assert graph.backward(None, None) == (None,)


def test_forward_and_backward_record_nothing() -> None:
    x = seeded(2, 3).requires_grad_()
    graph = diamond()
    y = graph.forward(x)
    assert not y.requires_grad
    (dx,) = graph.backward(torch.ones_like(y))
    assert dx is not None
    assert not dx.requires_grad


# ---- mistakes are named


def test_backward_without_forward_and_twice() -> None:
    graph = diamond()
    with pytest.raises(GraphError, match="backward needs a forward before it"):
        graph.backward(torch.ones(1, 3))
    graph.forward(seeded(1, 3))
    graph.backward(torch.ones(1, 3))
    with pytest.raises(GraphError, match="backward needs a forward before it"):
        graph.backward(torch.ones(1, 3))


def test_the_gradient_of_a_larger_output_has_to_be_given() -> None:
    graph = diamond()
    graph.forward(seeded(1, 3))
    with pytest.raises(GraphError, match="only single elements default to one"):
        graph.backward()


def test_wrong_numbers_and_shapes() -> None:
    graph = diamond()
    with pytest.raises(GraphError, match="takes 1 inputs, it was given 2"):
        graph.forward(seeded(1, 3), seeded(1, 3))
    with pytest.raises(ShapeError, match=r"input 'x' is declared as \[None, 3\], it was given float64\[1, 4\]"):
        graph.forward(seeded(1, 4))
    graph.forward(seeded(1, 3))
    with pytest.raises(GraphError, match="has 1 outputs, backward was given 2"):
        graph.backward(torch.ones(1, 3), torch.ones(1, 3))
    graph.forward(seeded(1, 3))
    with pytest.raises(ShapeError, match=r"the gradient of output y is float32\[3\], the output float64\[1, 3\]"):
        graph.backward(torch.ones(3))


def test_a_shape_error_inside_a_node_names_the_node_and_its_inputs() -> None:
    builder = Builder()
    x, w = builder.input("x"), builder.input("w")
    graph = builder.build(builder.add(Mul(), builder.add(Exp(), x), w, name="product"))
    with pytest.raises(
        NodeError, match=r"forward of node 'product' \(Mul\): .*live inputs \(float32\[2, 3\], float32"
    ) as e:
        graph.forward(torch.ones(2, 3), torch.ones(2, 4))
    assert e.value.phase == "forward"
    assert isinstance(e.value.__cause__, RuntimeError)


class Wrong(Node):
    def __init__(self, gives: Any) -> None:
        self.gives = gives

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b

    def backward(self, grad: Tensor, a: Tensor, b: Tensor) -> Any:
        return self.gives


@pytest.mark.parametrize(
    ("gives", "error", "message"),
    [
        ((torch.ones(2),), GradientError, r"backward of node 'wrong' \(Wrong\) gave 1 gradients for 2 inputs"),
        ((None,) * 3, GradientError, "gave 3 gradients for 2 inputs"),
        (torch.ones(2), GradientError, "it must give a tuple of gradients"),
        (None, GradientError, "gave NoneType, it must give a tuple"),
        ((torch.ones(2), 3.0), GradientError, "input b got float as its gradient"),
        (
            (torch.ones(2), torch.ones(1, 2)),
            ShapeError,
            r"the gradient of input b is float32\[1, 2\], the input float32",
        ),
    ],
)
def test_wrong_gradients_are_named(gives: Any, error: type[Exception], message: str) -> None:
    builder = Builder()
    graph = builder.build(builder.add(Wrong(gives), builder.input("a"), builder.input("b"), name="wrong"))
    graph.forward(torch.ones(2), torch.ones(2))
    with pytest.raises(error, match=message):
        graph.backward(torch.ones(2))


def test_picking_from_a_single_result_and_from_too_few() -> None:
    builder = Builder()
    x = builder.input("x")
    one = builder.add(Exp(), x, name="one")
    graph = builder.build(builder.add(Exp(), one[1], name="reader"))
    with pytest.raises(GraphError, match=r"'one' gives a single result, there is no one\[1\]"):
        graph.forward(torch.ones(2))
    builder = Builder()
    two = builder.add(Halves(), builder.input("x"), name="two")
    graph = builder.build(builder.add(Exp(), two, name="reader"))
    with pytest.raises(GraphError, match="'two' gives 2 results, pick one of them, not two"):
        graph.forward(torch.ones(2))


# ---- lifetimes


def chain(arena: Arena | None, *nodes: Node) -> Graph:
    builder = Builder(arena)
    ref = builder.input("x")
    for i, node in enumerate(nodes):
        ref = builder.add(node, ref, name=f"n{i}")
    return builder.build(ref)


def test_a_set_is_released_right_after_its_backward() -> None:
    seen: list[list[int]] = []

    class Probe(Exp):
        def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
            seen.append([len(graph.saved(f"n{i}")) for i in range(3)])
            return super().backward(grad, x)

    graph = chain(None, Probe(), Probe(), Probe())
    graph.forward(torch.zeros(2))
    graph.backward(torch.ones(2))
    assert seen == [[1, 1, 1], [1, 1, 0], [1, 0, 0]]
    assert len(graph.sets) == 0


def test_forward_only_loops_keep_one_step(device: str) -> None:
    arena = Arena(1 << 16, (device,), poison=True)
    graph = chain(arena, Exp(), Exp())
    x = torch.zeros(2, device=device)
    for _ in range(5):
        graph.forward(x)
        assert len(graph.sets) == 2
        assert arena.stats().pins == 3  # two saved, and the live input of the second node
    assert graph.mark_step_boundary() == 3
    assert arena.stats().pins == 0
    assert graph.mark_step_boundary() == 0


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_an_exception_leaves_no_pin(device: str, phase: str, parallel: bool) -> None:
    arena = Arena(1 << 16, (device,), poison=True)
    graph = chain(arena, Exp(), Sines(), Failing(phase), Exp())
    x = torch.zeros(2, device=device)

    def step() -> None:
        run(graph, parallel, x)
        graph.backward(torch.ones(2, device=device))

    for _ in range(2):
        with pytest.raises(NodeError, match=rf"{phase} of node 'n2' \(Failing\): ValueError: planted") as caught:
            step()
        assert isinstance(caught.value.__cause__, ValueError)
        assert arena.stats().pins == 0
        assert len(graph.sets) == 0
    with pytest.raises(GraphError, match="needs a forward"):
        graph.backward(torch.ones(2, device=device))


def test_an_interrupt_leaves_no_pin_and_is_not_wrapped() -> None:
    class Interrupted(Exp):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise KeyboardInterrupt

    arena = Arena(1 << 16)
    graph = chain(arena, Exp(), Interrupted())
    with pytest.raises(KeyboardInterrupt):
        graph.forward(torch.zeros(2))
    assert arena.stats().pins == 0


@pytest.mark.parametrize("parallel", [False, True])
def test_saved_and_live_inputs_survive_a_reset_between_the_passes(device: str, parallel: bool) -> None:
    arena = Arena(1 << 16, (device,), poison=True)
    graph = diamond(arena)
    for seed in range(3):
        x = seeded(2, 3, seed=seed, device=device)
        run(graph, parallel, x)
        arena.reset()
        (dx,) = graph.backward(torch.ones(2, 3, device=device, dtype=torch.float64))
        assert close(dx, by_autograd(diamond_formula, x)[0])
        assert arena.stats().pins == 0
        arena.reset()
        assert arena.stats().live_spans == 0
        assert arena.stats().used == 0


def test_a_cache_that_is_not_registered_is_caught_and_named(device: str) -> None:
    arena = Arena(1 << 16, (device,), poison=True)
    graph = chain(arena, Exp(), LeakyExp())
    graph.forward(torch.zeros(2, device=device))
    graph.backward(torch.ones(2, device=device))  # no reset between: nothing wrong yet
    graph.forward(torch.zeros(2, device=device))
    arena.reset()
    with pytest.raises(UseAfterReset, match=r"node 'n1' \(LeakyExp\): LeakyExp.output is used after a reset") as caught:
        graph.backward(torch.ones(2, device=device))
    assert (caught.value.node, caught.value.field) == ("'n1' (LeakyExp)", "output")
    assert arena.stats().pins == 0


def test_a_live_input_lives_until_the_last_consumer_ran(device: str) -> None:
    arena = Arena(1 << 16, (device,), poison=True)
    pins: list[int] = []

    class Probe(Scale):
        def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
            pins.append(arena.stats().pins)
            return super().backward(grad, x)

    builder = Builder(arena)
    e = builder.add(Scale(torch.ones(1, device=device)), builder.input("x"), name="e")
    ends = [builder.add(Probe(torch.ones(1, device=device)), e, name=f"p{i}") for i in range(3)]
    graph = builder.build(*ends)
    graph.forward(torch.ones(2, device=device))
    arena.reset()
    graph.backward(*[torch.ones(2, device=device)] * 3)
    assert pins == [3, 2, 1]


def test_a_graph_input_in_arena_memory_is_pinned_too(device: str) -> None:
    arena = Arena(1 << 16, (device,), poison=True)
    graph = chain(arena, Scale(torch.tensor([3.0], device=device)))
    with arena.place():
        x = torch.ones(2, device=device)
    graph.forward(x)
    arena.reset()
    (dx,) = graph.backward(torch.ones(2, device=device))
    assert dx is not None
    assert dx.tolist() == [3.0, 3.0]
    (parameter,) = graph.parameters()
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [2.0]


def test_a_stale_graph_input_is_refused(device: str) -> None:
    arena = Arena(1 << 16, (device,), poison=True)
    graph = chain(arena, Scale(torch.ones(1, device=device)))
    with arena.place():
        x = torch.ones(2, device=device)
    arena.reset()
    with pytest.raises(UseAfterReset, match=r"node 'n0' \(Scale\): input 0 is used after a reset"):
        graph.forward(x)
    assert arena.stats().pins == 0


def test_parallel_forward_publishes_its_results() -> None:
    graph = chain(None, Scale(torch.tensor([2.0])), Scale(torch.tensor([3.0])))
    graph.forward(torch.ones(1))
    graph.parallel_forward(torch.tensor([10.0]))
    graph.backward()
    grads = [parameter.grad for parameter in graph.parameters()]
    assert [grad.tolist() for grad in grads if grad is not None] == [[30.0], [20.0]]


def test_parallel_forward_overlaps_independent_nodes_and_attributes_their_saves() -> None:
    barrier = threading.Barrier(3, timeout=20)

    class Meets(Exp):
        def forward(self, x: Tensor) -> Tensor:
            barrier.wait()  # passes only when three nodes run at once
            y = super().forward(x)
            barrier.wait()
            self.save_for_backward(x)
            return y

    builder = Builder()
    x = builder.input("x")
    nodes = [Meets() for _ in range(3)]
    ends = [builder.add(node, x, name=f"n{i}") for i, node in enumerate(nodes)]
    graph = builder.build(*ends)
    given = torch.ones(2)
    graph.parallel_forward(given, workers=3)
    for i, node in enumerate(nodes):
        saved = graph.saved(f"n{i}")
        assert [id(tensor) for tensor in saved] == [id(node.output), id(given)]


def test_parallel_forward_takes_over_autocast() -> None:
    class MatMul(Node):
        def forward(self, x: Tensor) -> Tensor:
            return x @ x

        def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
            return (grad,)

    graph = chain(None, MatMul())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = graph.parallel_forward(torch.ones(2, 2))
    assert y.dtype is torch.bfloat16
    assert graph.parallel_forward(torch.ones(2, 2)).dtype is torch.float32


def test_after_a_failure_no_more_nodes_are_started() -> None:
    started: list[str] = []

    class Slow(Exp):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def forward(self, x: Tensor) -> Tensor:
            started.append(self.name)
            return super().forward(x)

    builder = Builder()
    x = builder.input("x")
    failed = builder.add(Failing("forward"), x)
    builder.add(Slow("after"), failed)
    graph = builder.build()
    with pytest.raises(NodeError):
        graph.parallel_forward(torch.ones(1))
    assert started == []


def test_double_forward_releases_the_first(device: str) -> None:
    arena = Arena(1 << 16, (device,), poison=True)
    graph = diamond(arena)
    x, later = seeded(2, 3, device=device), seeded(2, 3, seed=5, device=device)
    graph.forward(x)
    before = arena.stats().pins
    graph.forward(later)
    assert arena.stats().pins == before
    (dx,) = graph.backward(torch.ones_like(later))
    assert close(dx, by_autograd(diamond_formula, later)[0])


def test_one_registered_parameter_gradient_per_node_in_deep_reuse(device: str) -> None:
    """A long chain in a slab that holds it barely: overflow changes nothing."""
    arena = Arena(4096, (device,), poison=True)
    graph = chain(arena, *[Scale(torch.tensor([1.01], device=device, dtype=torch.float64)) for _ in range(40)])
    x = seeded(3, device=device)
    graph.forward(x)
    assert arena.stats().overflows > 0
    arena.reset()
    (dx,) = graph.backward(torch.ones(3, device=device, dtype=torch.float64))
    assert close(dx, torch.full((3,), 1.01**40, device=device, dtype=torch.float64))
    arena.reset()
    assert arena.stats().live_spans == 0
    for parameter in graph.parameters():
        assert parameter.grad is not None
        assert close(parameter.grad, x.sum().reshape(1) * 1.01**39)


UNARY = {"exp": (Exp, torch.exp), "sines": (Sines, lambda x: x.sin() + (2 * x).sin())}
BINARY = {"add": (Add, torch.add), "mul": (Mul, torch.mul)}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_graphs_against_autograd(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 4))
    arena = Arena(data.draw(st.sampled_from([0, 2048, 1 << 16])), poison=True)
    builder = Builder(arena)
    refs = [builder.input("x"), builder.input("y")]
    steps: list[tuple[Any, tuple[int, ...]]] = []
    for i in range(data.draw(st.integers(1, 7))):
        pick = st.integers(0, len(refs) - 1)
        if data.draw(st.booleans()):
            kind, formula = UNARY[data.draw(st.sampled_from(sorted(UNARY)))]
            sources: tuple[int, ...] = (data.draw(pick),)
        else:
            kind, formula = BINARY[data.draw(st.sampled_from(sorted(BINARY)))]
            sources = (data.draw(pick), data.draw(pick))
        refs.append(builder.add(kind(), *(refs[j] for j in sources), name=f"n{i}"))
        steps.append((formula, sources))

    def formula_of_graph(x: Tensor, y: Tensor) -> Tensor:
        values = [x, y]
        for formula, sources in steps:
            values.append(formula(*(values[j] for j in sources)))
        return values[-1]

    graph = builder.build(refs[-1])
    x, y = seeded(size, seed=1) * 0.1, seeded(size, seed=2) * 0.1
    want = by_autograd(formula_of_graph, x, y)
    run(graph, data.draw(st.booleans()), x, y)
    if data.draw(st.booleans()):
        arena.reset()
    got = graph.backward(torch.ones(size, dtype=torch.float64))
    for ours, theirs in zip(got, want, strict=True):
        assert torch.allclose(
            torch.zeros(size, dtype=torch.float64) if ours is None else ours, theirs, rtol=1e-9, equal_nan=True
        )
    assert arena.stats().pins == 0


def test_every_error_of_the_runtime_is_one_family() -> None:
    assert issubclass(GraphError, RuntimeContractError)
    assert issubclass(UseAfterReset, RuntimeContractError)
    assert issubclass(RuntimeContractError, RuntimeError)
