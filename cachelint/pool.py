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


class Deal:
    """Hands out items by number, so that neighbours go to the same worker as far as the load allows.

    Items are in the order of their paths, and a file's neighbours need the same other files: a worker that keeps to
    one stretch of the list parses each of those once. The heaviest go first and alone. Each worker then begins at a
    stretch of its own; when the next piece is taken, it goes on in the middle of the longest stretch left.
    """

    def __init__(self, weights: Sequence[int], jobs: int) -> None:
        target = max(1, sum(weights) // (jobs * 64))
        heavy = [item for item, weight in enumerate(weights) if weight > 4 * target]
        self._first = deque(sorted(heavy, key=lambda item: (-weights[item], item)))
        self._pieces: list[list[int] | None] = []
        piece: list[int] = []
        load = 0
        for item, weight in enumerate(weights):
            if weight > 4 * target:
                continue
            piece.append(item)
            load += weight
            if load >= target:
                self._pieces.append(piece)
                piece, load = [], 0
        if piece:
            self._pieces.append(piece)
        self._left = len(self._pieces)
        self._starts = deque(number * len(self._pieces) // jobs for number in range(jobs))

    def __bool__(self) -> bool:
        return bool(self._first or self._left)

    def take(self, after: int | None) -> tuple[list[int], int | None]:
        """The next items for a worker whose last piece was ``after``, and the number to give next time."""
        if self._first:
            return [self._first.popleft()], after
        if after is None and self._starts:
            after = self._starts.popleft() - 1
        following = -1 if after is None else after + 1
        if not (0 <= following < len(self._pieces) and self._pieces[following] is not None):
            following = self._middle()
        piece = self._pieces[following]
        assert piece is not None
        self._pieces[following] = None
        self._left -= 1
        return piece, following

    def _middle(self) -> int:
        """The middle of the longest run of pieces that nobody has taken."""
        best, length, start = 0, 0, 0
        for number, piece in enumerate([*self._pieces, None]):
            if piece is not None:
                continue
            if number - start > length:
                best, length = start, number - start
            start = number + 1
        return best + length // 2 if length > 1 else best

    def put_back(self, items: list[int]) -> None:
        """Items of a worker that died before it came to them."""
        self._first.extendleft(reversed(items))


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
    deal = Deal(weights, jobs)
    workers: set[_Worker] = set()
    try:
        while deal and len(workers) < jobs:
            worker = _Worker(job, workers)
            workers.add(worker)
            worker.give(deal)
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
                        deal.put_back(list(worker.pending))
                    if deal:
                        replacement = _Worker(job, workers)
                        workers.add(replacement)
                        replacement.give(deal)
                elif not worker.pending:
                    if deal:
                        worker.give(deal)
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
        self.last: int | None = None
        self.since = time.monotonic()

    def give(self, deal: Deal) -> None:
        """Hand out the next items."""
        items, self.last = deal.take(self.last)
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
        """Let the process end by itself. Nobody waits for it: giving its memory back takes it longer than a report."""
        self.connection.close()

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
