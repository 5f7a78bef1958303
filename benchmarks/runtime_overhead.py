"""What the bookkeeping of the contract costs, on a transformer block of width 512, sequence 256, batch 4.

    python benchmarks/runtime_overhead.py [--check] [--device cpu] [--steps 30]

Bookkeeping is everything that a graph does beside the layers' own arithmetic: savers, saved sets, pins on saved tensors
and live inputs, attribution, checks of gradients, release. It is measured from the inside, as the time in ``Graph`` and
in ``save_for_backward`` less the time in the node, because whole steps scatter by more than it costs. ``--check`` ends
with 1 above 2 % of a step. Placing every temporary in an arena is a debugging aid of its own and has its own row.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from cachelint.runtime import Arena, Builder, Graph, Node, SaverAware
from cachelint.runtime.layers.attention.grouped_query_attention import GroupedQueryAttention
from cachelint.runtime.layers.core.ffn import FFN
from cachelint.runtime.layers.init import Init
from cachelint.runtime.layers.transformer.block import Block
from cachelint.runtime.saver import saver_aware

WIDTH, LENGTH, BATCH, HEADS, HIDDEN = 512, 256, 4, 8, 2048
LIMIT = 0.02


@dataclass
class Clock:
    """Seconds that were spent in the layers, and in their calls of the saver."""

    layers: float = 0.0
    saving: float = 0.0


class Timed(Node):
    """A node that clocks the block inside it."""

    def __init__(self, inner: Node, clock: Clock) -> None:
        self.inner = inner
        self.clock = clock

    def forward(self, *inputs: Tensor) -> Any:
        started = perf_counter()
        found = self.inner.forward(*inputs)
        self.clock.layers += perf_counter() - started
        return found

    def backward(self, grad: Tensor, *inputs: Tensor) -> Any:
        started = perf_counter()
        found = self.inner.backward(grad, *inputs)
        self.clock.layers += perf_counter() - started
        return found


class TimedSaver:
    """A saver that clocks the one that it stands for."""

    def __init__(self, saver: Any, clock: Clock) -> None:
        self.saver = saver
        self.clock = clock

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        started = perf_counter()
        self.saver.save_for_backward(*tensors)
        self.clock.saving += perf_counter() - started


def block(device: str) -> Block:
    init = Init(device, torch.float32, torch.Generator().manual_seed(0))
    attention = GroupedQueryAttention(WIDTH, HEADS, HEADS, init=init)
    return Block(WIDTH, attention, FFN(WIDTH, HIDDEN, WIDTH, init=init), init=init)


def graph_of(node: Node, clock: Clock, arena: Arena | None) -> Graph:
    builder = Builder(arena)
    graph = builder.build(builder.add(Timed(node, clock), builder.input("x")))
    for _, layer in saver_aware(node):
        layer.set_saver(TimedSaver(layer.saver, clock))
    return graph


def bare_step(node: Node, x: Tensor, grad: Tensor) -> float:
    """Seconds of one step without graph, saver or arena."""
    started = perf_counter()
    with torch.no_grad():
        node.forward(x)
        node.backward(grad, x)
    _synchronise(x)
    return perf_counter() - started


def graph_step(graph: Graph, clock: Clock, x: Tensor, grad: Tensor) -> tuple[float, float]:
    """Seconds of one step in the graph, and how many of them are bookkeeping."""
    clock.layers = clock.saving = 0.0
    started = perf_counter()
    graph.forward(x)
    graph.backward(grad)
    whole = perf_counter() - started
    _synchronise(x)
    if graph.arena is not None:
        graph.arena.reset()
    return whole, whole - clock.layers + clock.saving


def _synchronise(x: Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def measure(device: str, steps: int) -> list[tuple[str, float, float]]:
    """Rows of (what, seconds, share of a bare step): medians over ``steps``, the variants taken in turn."""
    x = torch.randn(BATCH, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1)).to(device)
    grad = torch.randn(BATCH, LENGTH, WIDTH, generator=torch.Generator().manual_seed(2)).to(device)
    bare, clock, placed_clock = block(device), Clock(), Clock()
    ordinary = graph_of(block(device), clock, None)
    placed = graph_of(block(device), placed_clock, Arena(1 << 30, (device,)))
    times: dict[str, list[float]] = {name: [] for name in ("bare", "books", "placed", "placed books")}
    for step in range(steps + 2):
        one = bare_step(bare, x, grad)
        _, books = graph_step(ordinary, clock, x, grad)
        whole, pinned_books = graph_step(placed, placed_clock, x, grad)
        if step >= 2:
            for name, value in zip(times, (one, books, whole, pinned_books), strict=True):
                times[name].append(value)
    step_time, books, whole, pinned = (statistics.median(values) for values in times.values())
    saved = sum(1 for _ in saver_aware(bare) if isinstance(_[1], SaverAware))
    return [
        (f"one step of the block, {saved} layers that save", step_time, 1.0),
        ("bookkeeping, ordinary memory", books, books / step_time),
        ("bookkeeping, arena memory that is pinned", pinned, pinned / step_time),
        (
            "placing every temporary in the arena (debugging)",
            whole - pinned - step_time,
            (whole - pinned) / step_time - 1,
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--check", action="store_true", help=f"end with 1 above {LIMIT:.0%}")
    options = parser.parse_args()
    rows = measure(options.device, options.steps)
    print(
        f"width {WIDTH}, sequence {LENGTH}, batch {BATCH}, float32, {options.device}, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads, median of {options.steps}\n"
    )
    print("| | per step | share |\n| --- | ---: | ---: |")
    for what, seconds, share in rows:
        print(f"| {what} | {seconds * 1e3:.3f} ms | {share:.2%} |")
    over = [what for what, _, share in rows[1:3] if share > LIMIT]
    for what in over:
        print(f"{what}: more than {LIMIT:.0%} of a step", file=sys.stderr)
    return 1 if over and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
