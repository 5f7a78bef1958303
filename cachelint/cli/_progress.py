"""The progress bar on a terminal; rich is imported when the bar is first drawn, so a short run never pays for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def progress_bar(show: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A function to call with the number of files done and to do, or None when nobody looks."""
    if not show:
        yield None
        return
    state: dict[str, Any] = {}

    def advance(done: int, total: int) -> None:
        if not state:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("analysing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            state["bar"] = Progress(*columns, console=Console(stderr=True), transient=True)
            state["task"] = state["bar"].add_task("", total=total)
            state["bar"].start()
        state["bar"].update(state["task"], completed=done, total=total)

    try:
        yield advance
    finally:
        if state:
            state["bar"].stop()
