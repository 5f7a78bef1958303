"""Worker processes that outlive a bad file.

Each worker is given a few items at a time and answers them in order, so that when one dies or hangs, the item that it
was on is known: that item fails with a message, a new worker takes its place, and the rest goes on.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

GRACE = 10.0
"""Seconds beyond the limit of an item after which its worker is killed: it did not heed the limit itself."""


METHOD = "fork" if sys.platform == "linux" else "spawn"
"""How processes start: forked ones share what was read and computed before, but not every system forks safely."""


class Job(Protocol):
    """What a worker does. A job is handed to the workers once, by fork where there is one and pickled otherwise."""

    def answer(self, item: int) -> Any:
        """The answer to one item, by its number."""


def usable_jobs() -> int:
    """How many processes may run at once here."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


def chunks(weights: Sequence[int], jobs: int) -> list[list[int]]:
    """Items (by number) in chunks: the heaviest first and alone, then more and more of the light ones together."""
    order = sorted(range(len(weights)), key=lambda item: (-weights[item], item))
    target = max(1, sum(weights) // (jobs * 12))
    found: list[list[int]] = []
    current: list[int] = []
    load = 0
    for item in order:
        current.append(item)
        load += weights[item]
        if load >= target:
            found.append(current)
            current, load = [], 0
    if current:
        found.append(current)
    return found


def run(
    job: Job,
    weights: Sequence[int],
    jobs: int,
    limit: float,
    receive: Callable[[int, Any], None],
    fail: Callable[[int, str], None],
) -> None:
    """Answer every item of ``job`` in ``jobs`` processes.

    ``weights`` are rough costs, ``limit`` the seconds that one item may take. ``receive`` is called with each answer,
    ``fail`` with a sentence for each item whose worker died or hung; both run in this process.
    """
    queue = deque(chunks(weights, jobs))
    workers: set[_Worker] = set()
    try:
        while queue and len(workers) < jobs:
            worker = _Worker(job, workers)
            workers.add(worker)
            worker.give(queue.popleft())
        while workers:
            ready = wait([worker.connection for worker in workers], timeout=1.0)
            for worker in list(workers):
                trouble = ""
                if worker.connection in ready:
                    trouble = worker.take(receive)
                elif worker.pending and time.monotonic() - worker.since > limit + GRACE:
                    trouble = f"gave up after {limit:.0f} s"
                if trouble:
                    workers.discard(worker)
                    worker.kill()
                    fail(worker.pending.popleft(), trouble)
                    if worker.pending:
                        queue.appendleft(list(worker.pending))
                    if queue:
                        replacement = _Worker(job, workers)
                        workers.add(replacement)
                        replacement.give(queue.popleft())
                elif not worker.pending:
                    if queue:
                        worker.give(queue.popleft())
                    else:
                        workers.discard(worker)
                        worker.stop()
    finally:
        for worker in workers:
            worker.kill()


class _Worker:
    """One process, the pipe to it, and the items that it still owes."""

    def __init__(self, job: Job, others: Iterable[_Worker]) -> None:
        context: Any = multiprocessing.get_context(METHOD)
        self.connection, theirs = context.Pipe()
        # A forked child has copies of our ends of all pipes; while it keeps them open, nobody sees this end close.
        inherited = [self.connection, *(other.connection for other in others)] if METHOD == "fork" else []
        self.process = context.Process(target=_serve, args=(theirs, job, inherited), daemon=True)
        self.process.start()
        theirs.close()
        self.pending: deque[int] = deque()
        self.since = time.monotonic()

    def give(self, items: list[int]) -> None:
        """Hand out items."""
        self.pending.extend(items)
        self.since = time.monotonic()
        try:
            self.connection.send(items)
        except OSError:
            return  # it died; take() will notice

    def take(self, receive: Callable[[int, Any], None]) -> str:
        """Pass on one answer; what went wrong with the worker, if something did."""
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            self.process.join(GRACE)
            code = self.process.exitcode
            how = f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
            return f"the process that worked on it died ({how})"
        self.since = time.monotonic()
        receive(self.pending.popleft(), answer)
        return ""

    def stop(self) -> None:
        """Let the process end by itself."""
        self.connection.close()
        self.process.join(GRACE)
        if self.process.is_alive():
            self.kill()

    def kill(self) -> None:
        """End the process now."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def _serve(connection: Connection, job: Job, inherited: Sequence[Connection]) -> None:
    """The worker's loop: until its pipe closes."""
    for other in inherited:
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    while True:
        try:
            items = connection.recv()
        except (EOFError, OSError):
            return
        for item in items:
            try:
                connection.send(job.answer(item))
            except (BrokenPipeError, ConnectionError):
                return
