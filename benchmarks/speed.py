"""How long ``cachelint check`` takes beside ``ruff check``, and TorchFix, on the same files.

    python benchmarks/speed.py --liger DIR --fla DIR --megatron DIR [--cachelint [LABEL=]COMMAND]...
        [--torchfix COMMAND] [--runs 5] [--out speed.md]

The three folders are unpacked wheels of liger-kernel, fla-core and megatron-core. Each run times, in turn, Ruff without
its cache, cachelint cold (``--no-cache``) and cachelint warm (a cache that an untimed run filled); the table has every
run and the medians. ``--cachelint`` may be given several times, to compare installations under different Pythons: how
Python itself was built matters (profile-guided optimisation above all). Install the package for this (not editable),
so that its bytecode is there. Peak memory is that of the largest process of the tree. The single-file part times
``check FILE`` for 50 files drawn with a fixed seed and compares their findings with those of ``check .``.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def timed(command: list[str], cwd: str | None = None) -> tuple[float, int]:
    """Wall seconds and the peak resident size in KiB of a command whose findings don't matter."""
    start = time.perf_counter()
    child = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(child.pid, 0)
    seconds, peak = time.perf_counter() - start, usage.ru_maxrss
    with contextlib.suppress(ChildProcessError):
        while True:  # workers that the command left to end by themselves: they are this process's children now
            peak = max(peak, os.wait4(-1, 0)[2].ru_maxrss)
    return seconds, peak


def adopt() -> None:
    """Become the parent of what commands leave behind (Linux), so that it can be measured."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def findings(command: list[str], cwd: str) -> list[tuple[str, int, int, str]]:
    """The findings of a check as comparable tuples."""
    run = subprocess.run([*command, "--output-format", "json"], cwd=cwd, capture_output=True, text=True)
    return [(f["path"], f["line"], f["column"], f["code"]) for f in json.loads(run.stdout)["findings"]]


def single_files(cachelint: str, megatron: str, count: int) -> tuple[int, list[float]]:
    """(files whose findings differ, wall seconds of each) for random files of a tree."""
    files = sorted(p.relative_to(megatron).as_posix() for p in Path(megatron).rglob("*.py"))
    chosen = random.Random(0).sample(files, min(count, len(files)))
    whole = findings([cachelint, "check", "--no-cache", "."], megatron)
    differ, seconds = 0, []
    for name in chosen:
        start = time.perf_counter()
        alone = findings([cachelint, "check", "--no-cache", name], megatron)
        seconds.append(time.perf_counter() - start)
        differ += alone != [f for f in whole if f[0] == name]
    return differ, seconds


def main() -> int:
    """Measure, and print the tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--liger", required=True)
    parser.add_argument("--fla", required=True)
    parser.add_argument("--megatron", required=True)
    parser.add_argument("--cachelint", action="append", help="the command; may be given several times")
    parser.add_argument("--torchfix", help="the command, from an environment of its own: it needs an old libcst")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--files", type=int, default=50)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    adopt()
    trees = [os.path.abspath(one) for one in (args.liger, args.fla, args.megatron)]
    installed = {
        label: command for label, _, command in (one.rpartition("=") for one in args.cachelint or ["cachelint"])
    }
    first = next(iter(installed.values()))
    lines: list[str] = []

    def say(text: str = "") -> None:
        lines.append(text)
        print(text, flush=True)

    with tempfile.TemporaryDirectory() as cwd:
        commands = {"ruff check --no-cache": ["ruff", "check", "--no-cache", *trees]}
        for label, command in installed.items():
            commands[f"cachelint check, cold {label}".strip()] = [command, "check", "--no-cache", *trees]
            commands[f"cachelint check, warm {label}".strip()] = [command, "check", *trees]
            timed([command, "check", *trees], cwd)
        took: dict[str, list[float]] = {name: [] for name in commands}
        peak = dict.fromkeys(commands, 0)
        for _ in range(args.runs):
            for name, command in commands.items():
                seconds, memory = timed(command, cwd)
                took[name].append(seconds)
                peak[name] = max(peak[name], memory)
        base = statistics.median(took["ruff check --no-cache"])
        say(f"| command | {' | '.join(f'run {i + 1}' for i in range(args.runs))} | median, s | times Ruff | peak MiB |")
        say("| --- |" + " --- |" * (args.runs + 3))
        for name, runs in took.items():
            median = statistics.median(runs)
            cells = " | ".join(f"{one:.2f}" for one in runs)
            say(f"| `{name}` | {cells} | {median:.2f} | {median / base:.2f} | {peak[name] // 1024} |")
        if args.torchfix:
            slow, _ = timed([*args.torchfix.split(), trees[0]], cwd)
            fast = statistics.median(timed([first, "check", "--no-cache", trees[0]], cwd)[0] for _ in range(3))
            say()
            say(
                f"TorchFix on liger-kernel alone: {slow:.1f} s; cachelint cold: {fast:.2f} s; {slow / fast:.0f} times slower."
            )
    differ, seconds = single_files(first, args.megatron, args.files)
    say()
    say(
        f"`check FILE` on {len(seconds)} random files of megatron-core: {differ} with other findings than `check .`; "
        f"median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s."
    )
    say()
    say(f"{os.cpu_count()} cores, load before {os.getloadavg()[0]:.1f}.")
    if args.out:
        args.out.write_text("\n".join(lines) + "\n")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
