"""Worker processes: all items answered once, whatever one of them does to its worker."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachelint import pool


@dataclass
class Squares:
    """Answers with squares; some items crash, exit or hang."""

    crash: frozenset[int] = frozenset()
    leave: frozenset[int] = frozenset()
    hang: frozenset[int] = frozenset()

    def answer(self, item: int) -> tuple[int, int]:
        if item in self.crash:
            os.kill(os.getpid(), signal.SIGKILL)
        if item in self.leave:
            os._exit(7)
        if item in self.hang:
            time.sleep(60)
        return item * item, os.getpid()


def _run(
    job: Squares, weights: list[int], jobs: int, limit: float = 60
) -> tuple[dict[int, int], dict[int, str], set[int]]:
    answers: dict[int, int] = {}
    failures: dict[int, str] = {}
    processes = set()

    def receive(item: int, answer: tuple[int, int]) -> None:
        assert item not in answers
        answers[item] = answer[0]
        processes.add(answer[1])

    def fail(item: int, why: str) -> None:
        assert item not in failures
        failures[item] = why

    pool.run(job, weights, jobs, limit, receive, fail)
    return answers, failures, processes


@pytest.mark.parametrize("count", [1, 2, 50])
def test_every_item_is_answered_once(count: int) -> None:
    answers, failures, processes = _run(Squares(), [1] * count, 2)
    assert answers == {item: item * item for item in range(count)}
    assert failures == {}
    assert os.getpid() not in processes
    assert len(processes) <= 2


def test_a_worker_that_dies_takes_one_item_with_it() -> None:
    job = Squares(crash=frozenset({3, 4}), leave=frozenset({0, 29}))
    answers, failures, _ = _run(job, [1] * 30, 2)
    assert set(answers) == set(range(30)) - {0, 3, 4, 29}
    assert {item: why.rpartition("(")[2] for item, why in failures.items()} == {
        3: "signal 9)", 4: "signal 9)", 0: "exit status 7)", 29: "exit status 7)"
    }  # fmt: skip


def test_a_worker_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "GRACE", 0.1)
    start = time.monotonic()
    answers, failures, _ = _run(Squares(hang=frozenset({5})), [1] * 10, 2, limit=0.3)
    assert set(answers) == set(range(10)) - {5}
    assert failures == {5: "gave up after 0 s"}
    assert time.monotonic() - start < 20


def test_no_worker_is_left_behind() -> None:
    import multiprocessing

    _run(Squares(crash=frozenset({1})), [1] * 6, 2)
    end = time.monotonic() + 20
    while multiprocessing.active_children() and time.monotonic() < end:
        time.sleep(0.01)  # they end by themselves, while their parent goes on
    assert multiprocessing.active_children() == []


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 8), st.randoms())
def test_every_item_is_dealt_once(weights: list[int], jobs: int, random: Random) -> None:
    deal = pool.Deal(weights, jobs)
    last: list[int | None] = [None] * jobs
    dealt: list[int] = []
    while deal:
        worker = random.randrange(jobs)
        items, last[worker] = deal.take(last[worker])
        assert items
        dealt += items
    assert sorted(dealt) == list(range(len(weights)))


def test_workers_keep_to_stretches_of_the_list() -> None:
    deal = pool.Deal([1] * 1280, 2)
    last: list[int | None] = [None, None]
    own: list[list[int]] = [[], []]
    while deal:
        for worker in (0, 1):
            if deal:
                items, last[worker] = deal.take(last[worker])
                own[worker] += items
    assert own == [list(range(640)), list(range(640, 1280))]


def test_the_heaviest_go_first() -> None:
    deal = pool.Deal([1] * 50 + [900] + [1] * 50 + [1000], 2)
    first, after = deal.take(None)
    second, _ = deal.take(after)
    assert (first, second) == ([101], [50])


def test_what_a_dead_worker_left_is_dealt_again() -> None:
    deal = pool.Deal([1] * 4, 1)
    items, _ = deal.take(None)
    deal.put_back(items)
    dealt = []
    after = None
    while deal:
        got, after = deal.take(after)
        dealt += got
    assert sorted(dealt) == [0, 1, 2, 3]
