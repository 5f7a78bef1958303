"""Containers in containers: joining them again and again takes the same work each time."""

from __future__ import annotations

import pytest

from cachelint.infer import values
from cachelint.infer.values import DEVICE, HOST, Seq, Value, carried, join, sequence


def rounds(count: int, mutable: bool) -> Value:
    """``b = [a, b, i]`` in one branch after another."""
    kept = Value(HOST)
    for number in range(count):
        tensor = Value(DEVICE, roots=frozenset((f"n{number}",)))
        kept = join(kept, sequence([tensor, kept, Value(HOST)], mutable))
    return kept


@pytest.mark.parametrize("mutable", [False, True])
def test_the_work_of_a_round_does_not_grow(monkeypatch: pytest.MonkeyPatch, mutable: bool) -> None:
    calls = 0
    real = values._both

    def counted(*arguments: object) -> Value:
        nonlocal calls
        calls += 1
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(values, "_both", counted)
    took = []
    for count in (20, 40, 60):
        calls = 0
        rounds(count, mutable)
        took.append(calls)
    assert took[2] - took[1] == took[1] - took[0], took


def test_a_tensor_near_the_surface_is_still_carried() -> None:
    inner = Value(DEVICE, roots=frozenset(("p:x",)))
    for _ in range(4):
        inner = join(sequence([inner], True), sequence([Value(HOST), inner], True))
    assert carried(inner).kinds & DEVICE
    assert isinstance(inner.ref, Seq)
