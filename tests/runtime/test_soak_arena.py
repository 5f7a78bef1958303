"""Ten thousand random steps of random graphs in one arena: no pin left, no leak, no corruption, bounded memory."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from toy_layers import Add, Exp, Failing, Halves, LeakyExp, Mul, Scale, Sines

from cachelint.runtime import Arena, Builder, Graph, Node, NodeError, Persistent, Ref, SaverAware, UseAfterReset

CAPACITY = 1 << 17
STEPS_OF_A_GRAPH = 12


class Running(SaverAware, Node):
    """Adds a running sum of its inputs' means, kept over the steps: ``y = x + state``."""

    def __init__(self) -> None:
        self.state = Persistent()
        self.expected = 0.0

    def forward(self, x: Tensor) -> Tensor:
        before = self.state.get()
        y = x.clone() if before is None else x + before
        self.expected += float(x.mean())
        self.state.set(x.mean() if before is None else before + x.mean())
        return y

    def backward(self, grad: Tensor, x: Tensor) -> tuple[Tensor]:
        return (grad,)

    def intact(self) -> bool:
        value = self.state.get()
        return value is None or abs(float(value) - self.expected) < 1e-9 * max(1.0, abs(self.expected))


@dataclass
class Program:
    """A random graph with the same formula in autograd's operators."""

    graph: Graph
    formula: Callable[[Tensor, Tensor, list[Tensor]], Tensor]
    scales: list[Scale]
    running: list[Running]
    failing: list[Failing] = field(default_factory=list)


def random_program(rng: random.Random, arena: Arena, device: str) -> Program:
    builder = Builder(arena)
    refs: list[Ref] = [builder.input("x"), builder.input("y")]
    steps: list[tuple[str, tuple[int, ...], Any]] = []
    scales: list[Scale] = []
    running: list[Running] = []
    failing: list[Failing] = []
    for _ in range(rng.randint(2, 8)):
        kind = rng.choice(["exp", "sines", "mul", "add", "scale", "halves", "maybe fails", "running"])
        a, b = rng.randrange(len(refs)), rng.randrange(len(refs))
        if kind in ("mul", "add"):
            refs.append(builder.add(Mul() if kind == "mul" else Add(), refs[a], refs[b]))
            steps.append((kind, (a, b), None))
            continue
        node: Node
        if kind == "scale":
            node = Scale(torch.rand(1, dtype=torch.float64).to(device) + 0.5)
            scales.append(node)
        elif kind == "running":
            node = Running()
            running.append(node)
        elif kind == "maybe fails":
            node = Failing("")
            failing.append(node)
        elif kind == "halves":
            halves = builder.add(Halves(), refs[a])
            refs.append(builder.add(Join(), halves[1], halves[0]))
            steps.append((kind, (a,), None))
            continue
        else:
            node = Exp() if kind == "exp" else Sines()
        refs.append(builder.add(node, refs[a]))
        steps.append((kind, (a,), node))

    def formula(x: Tensor, y: Tensor, weights: list[Tensor]) -> Tensor:
        values, left = [x, y], list(weights)
        for kind, sources, node in steps:
            given = [values[i] for i in sources]
            if kind == "scale":
                values.append(given[0] * left.pop(0))
            elif kind == "halves":
                values.append(torch.cat(given[0].chunk(2, -1)[::-1], -1))
            elif kind == "running":
                values.append(given[0] + node.expected)
            else:
                values.append(FORMULAS[kind](*given))
        return values[-1]

    # Nodes that lead nowhere are part of the test: they save, and no gradient ever reaches them.
    return Program(builder.build(refs[-1]), formula, scales, running, failing)


class Join(Node):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a, b], -1)

    def backward(self, grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        first, second = grad.chunk(2, -1)
        return first, second


FORMULAS: dict[str, Callable[..., Tensor]] = {
    "exp": torch.exp,
    "sines": lambda x: torch.sin(x) + torch.sin(2 * x),
    "mul": torch.mul,
    "add": torch.add,
    "maybe fails": torch.sin,
}


def wanted(program: Program, x: Tensor, y: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The output and the gradients of x, y and the weights, by autograd in ordinary memory."""
    leaves = [t.detach().clone().requires_grad_() for t in (x, y, *(s.w.value for s in program.scales))]
    output = program.formula(leaves[0], leaves[1], leaves[2:])
    if not output.requires_grad:
        return output, [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad(output, leaves, grad, allow_unused=True)
    return output.detach(), [torch.zeros_like(t) if g is None else g for t, g in zip(leaves, found, strict=True)]


def close(got: Tensor | None, want: Tensor) -> bool:
    got = torch.zeros_like(want) if got is None else got
    return torch.allclose(got, want, rtol=1e-9, atol=1e-12, equal_nan=True)


def soak(steps: int, seed: int, device: str) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    arena = Arena(CAPACITY, (device,), poison=True)
    program = random_program(rng, arena, device)
    counts = dict.fromkeys(("compared", "reset between", "parallel", "raised", "abandoned", "inference"), 0)
    for step in range(steps):
        if step % STEPS_OF_A_GRAPH == 0:
            program = random_program(rng, arena, device)
        one_step(rng, program, arena, device, counts)
        persistent = sum(node.state.get() is not None for node in program.running)
        if rng.random() < 0.9:
            program.graph.mark_step_boundary()
            assert arena.stats().pins == persistent
            arena.reset()
            assert arena.stats().live_spans == persistent
        assert all(node.intact() for node in program.running)
        stats = arena.stats()
        assert stats.used <= stats.high_water <= CAPACITY
    program.graph.mark_step_boundary()
    del program
    gc.collect()  # a traceback may have kept the last program
    assert arena.stats().pins == 0
    arena.reset()
    stats = arena.stats()
    assert (stats.live_spans, stats.used, stats.pinned_bytes, stats.floor) == (0, 0, 0, 0)
    assert min(counts.values()) > steps // 100, counts


def one_step(rng: random.Random, program: Program, arena: Arena, device: str, counts: dict[str, int]) -> None:
    shape = (rng.randint(1, 4), 2 * rng.randint(1, rng.choice([2, 2, 2, 40])))
    x, y, grad = ((torch.rand(shape, dtype=torch.float64).to(device) - 0.5) * 0.2 for _ in range(3))
    if rng.random() < 0.2:
        x = arena.move(x)  # a live input that is arena memory itself
    for node in program.failing:
        node.phase = rng.choice(["forward", "backward"]) if rng.random() < 0.1 else ""
    for scale in program.scales:
        scale.w.zero_grad()
    output, grads = wanted(program, x, y, grad)
    graph = program.graph
    try:
        if rng.random() < 0.15:
            counts["parallel"] += 1
            got = graph.parallel_forward(x, y, workers=2)
        else:
            got = graph.forward(x, y)
        assert close(got, output)
        choice = rng.random()
        if choice < 0.1:
            counts["inference"] += 1
            return
        if choice < 0.15:
            counts["abandoned"] += 1
            graph.forward(x, y)  # the first one's sets are released
            return
        if choice < 0.6:
            counts["reset between"] += 1
            arena.reset()
        found = graph.backward(grad)
        counts["compared"] += 1
        assert all(close(a, b) for a, b in zip(found, grads, strict=False))
        for scale, want in zip(program.scales, grads[2:], strict=True):
            assert close(scale.w.grad, want)
    except NodeError as error:
        if str(error.__cause__) != "planted":
            raise
        counts["raised"] += 1
        assert len(graph.sets) == 0


def test_soak(device: str) -> None:
    """A part of the long one, seconds on the CPU."""
    soak(2_000, seed=1, device=device)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [2, 3])
def test_long_soak(seed: int) -> None:
    """About half a minute each; on the CPU alone, because on CUDA each of the tiny operators is a launch."""
    soak(10_000, seed=seed, device="cpu")


def test_the_soak_sees_a_layer_that_does_not_register(device: str) -> None:
    """The planted fault: the same arena and graph catch it, so the soak is not blind."""
    arena = Arena(CAPACITY, (device,), poison=True)
    builder = Builder(arena)
    graph = builder.build(builder.add(LeakyExp(), builder.input("x")))
    graph.forward(torch.zeros(3, device=device))
    arena.reset()
    with pytest.raises(UseAfterReset, match=r"LeakyExp\.output"):
        graph.backward(torch.ones(3, device=device))
