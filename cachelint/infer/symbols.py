"""Evidence about what nothing in the code decides by itself: parameters, attributes of handles, unknown results.

Each such thing is a symbol. Interpretation notes what the code does with it; afterwards the strongest evidence wins
and a second interpretation uses the outcome. Names only break a tie, and the verdict then says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cachelint.infer.values import DEVICE, HIGH, HOST, LOW, MEDIUM, NONE, Why

# Strengths. DECISIVE ends the question; WEAK only counts when nothing else speaks.
DECISIVE: Final = 5
STRONG: Final = 4
FAIR: Final = 3
WEAK: Final = 2
HINT: Final = 1


@dataclass
class Symbol:
    """The evidence about one symbol. ``kind``: param, star, attr, result, self."""

    name: str
    kind: str
    label: str
    path: str
    line: int
    optional: bool = False
    best: dict[int, tuple[int, Why]] = field(default_factory=dict)
    later: list[Callable[[], None]] = field(default_factory=list)
    prior: int = 0
    called: bool = False
    foreign: set[str] = field(default_factory=set)
    """Attributes read from it that no tensor has."""
    tensor_use: int = 0
    given: frozenset[str] = frozenset()
    """For the result of unseen code: the parameters that its undecided arguments come from."""
    target: str = ""
    """For one of several results: the name that it is unpacked into."""

    def note(self, side: int, strength: int, why: Why) -> None:
        """Evidence that the symbol is on ``side`` (HOST or DEVICE)."""
        known = self.best.get(side)
        if known is None or known[0] < strength:
            self.best[side] = (strength, why)


@dataclass(frozen=True)
class Outcome:
    """What a symbol turned out to be."""

    kinds: int
    sure: int
    why: Why | None
    handle: bool = False
    foreign_only: bool = False


def settle(symbol: Symbol) -> Outcome:
    """Weigh the evidence of one symbol. With none at all the kinds stay 0: unknown."""
    device = symbol.best.get(DEVICE)
    host = symbol.best.get(HOST)
    if max(device[0] if device else 0, host[0] if host else 0) < STRONG and symbol.later:
        pending, symbol.later = symbol.later, []
        for look in pending:
            look()
        device, host = symbol.best.get(DEVICE), symbol.best.get(HOST)
    none = NONE if symbol.optional else 0
    if device is None and host is None:
        return Outcome(0, LOW, None)
    if symbol.called and host is not None:
        return Outcome(HOST | none, HIGH, host[1], True)  # no tensor is called like a function
    if host is not None and host[0] >= DECISIVE and (device is None or device[0] < DECISIVE):
        return Outcome(HOST | none, HIGH, host[1])
    if device is not None and device[0] <= FAIR and symbol.foreign and (host is None or host[0] <= FAIR):
        # `.dtype` and `.device` alone show little of an object that has attributes no tensor has.
        told = host[1] if host is not None else device[1]
        text = f"{symbol.label}: its attribute `{min(symbol.foreign)}` is read, which tensors don't have"
        return Outcome(HOST | none, MEDIUM, Why(told.path, told.line, text), True)
    if device is not None and host is not None and device[0] == host[0]:
        if device[0] >= FAIR:
            return Outcome(DEVICE | HOST, MEDIUM, device[1])
        side, best = (DEVICE, device) if symbol.prior == DEVICE else (HOST, host)
        return Outcome(side | none, LOW, best[1], symbol.called)
    if host is None or (device is not None and device[0] > host[0]):
        assert device is not None
        both = HOST if host is not None and host[0] >= STRONG else 0
        sure = HIGH if device[0] >= STRONG else MEDIUM if device[0] >= WEAK else LOW
        return Outcome(DEVICE | none | both, sure, device[1])
    sure = HIGH if host[0] >= STRONG else MEDIUM if host[0] >= WEAK else LOW
    both = DEVICE if device is not None and device[0] >= STRONG else 0
    return Outcome(HOST | none | both, sure, host[1], symbol.called)
