"""What the meter and the poison's watch cost a training step, per operator.

Measures one forward and backward of a stack of torch's own encoder layers on the CPU, one thread, best of several, in
this order within each round: plain, metered, watched. Run it with ``python benchmarks/meter_overhead.py``; it prints
one Markdown table. ``live`` is how many storages are alive at the peak: the meter looks at each of them after every
operator, so that a storage that is resized behind the dispatcher's back is found.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable

import torch
from torch import nn

from cachelint.runtime.meter import Meter
from cachelint.runtime.poison_watch import Watch

ROUNDS = 7


def step(layers: int) -> Callable[[], None]:
    net = nn.Sequential(*[nn.TransformerEncoderLayer(64, 4, 128, batch_first=True) for _ in range(layers)])
    x = torch.randn(2, 16, 64)

    def run() -> None:
        net(x).sum().backward()

    return run


def timed(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def row(layers: int) -> str:
    run = step(layers)

    def metered() -> Meter:
        with Meter() as meter:
            run()
        return meter

    def watched() -> None:
        with Watch():
            run()

    found = metered().report()
    times = [[timed(run), timed(lambda: void(metered())), timed(watched)] for _ in range(ROUNDS)]
    plain, meter, watch = (min(column) for column in zip(*times, strict=True))
    ops = len(found.timeline)
    return (
        f"| {layers} | {ops} | {len(found.live)} | {plain * 1e3:.1f} | {meter * 1e3:.1f} | {watch * 1e3:.1f} "
        f"| {(meter - plain) / ops * 1e6:.0f} | {(watch - plain) / ops * 1e6:.0f} |"
    )


def void(_: object) -> None:
    """Drop a result inside the timed call."""


def main() -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {platform.machine()}, {platform.system()}, Python {platform.python_version()}\n")
    print("| layers | operators | live | plain ms | metered ms | watched ms | meter µs/op | watch µs/op |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for layers in (1, 4, 16):
        print(row(layers))


if __name__ == "__main__":
    main()
