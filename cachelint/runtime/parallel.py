"""Running the steps of a graph on threads, in the order that their dependencies allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass

import torch

_AUTOCAST_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True)
class ThreadState:
    """What torch keeps per thread and a worker must take over: the grad mode and autocast."""

    grad: bool
    autocast: tuple[tuple[str, bool, torch.dtype], ...]

    @classmethod
    def capture(cls) -> ThreadState:
        """The state of the calling thread."""
        return cls(
            torch.is_grad_enabled(),
            tuple((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _AUTOCAST_DEVICES),
        )

    @contextmanager
    def restored(self) -> Iterator[None]:
        """The captured state holds in this thread within the block."""
        before = ThreadState.capture()
        self._set()
        try:
            yield
        finally:
            before._set()

    def _set(self) -> None:
        torch.set_grad_enabled(self.grad)
        for device, enabled, dtype in self.autocast:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)


def run(dependencies: Sequence[set[int]], step: Callable[[int], None], workers: int) -> None:
    """Call ``step(i)`` once for every i, after every step in ``dependencies[i]`` has returned.

    After the first exception no step is started any more; those that run are waited for, then it is raised.
    """
    failure = _first_failure(dependencies, step, workers)
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # the traceback holds this frame: a cycle would keep the tensors of the pass alive


def _first_failure(dependencies: Sequence[set[int]], step: Callable[[int], None], workers: int) -> BaseException | None:
    waiting = {index: set(needs) for index, needs in enumerate(dependencies)}
    futures: dict[Future[None], int] = {}
    failure: BaseException | None = None
    with ThreadPoolExecutor(max_workers=workers) as pool:
        while True:
            if failure is None:
                for index in [index for index, needs in waiting.items() if not needs]:
                    del waiting[index]
                    futures[pool.submit(step, index)] = index
            if not futures:
                return failure
            done, _ = wait(futures, return_when=FIRST_COMPLETED)
            for future in done:
                finished = futures.pop(future)
                failure = failure or future.exception()
                for needs in waiting.values():
                    needs.discard(finished)
