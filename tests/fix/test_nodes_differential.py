"""Random function nodes before and after their fix: the same outputs and gradients wherever the node was right."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fix.differential import fixed, module_of
from tests.fix.node_programs import program
from tests.fix.test_nodes import array, install

np = pytest.importorskip("numpy")


def outcome(module: Any, p: bool, q: bool, sign: int) -> list[Any] | None:
    """What a node gives, None where it fails."""
    try:
        node = module.Fn(p, q)
        return list(node.run((array(0), sign * abs(array(1))), "cpu"))
    except (AttributeError, TypeError, NameError, ValueError, IndexError):
        return None


def compare(text: str, after: str) -> str:
    """What a fix changed, empty if nothing."""
    old, new = module_of(text), module_of(after)
    for p in (False, True):
        for q in (False, True):
            for sign in (1, -1):
                was, now = outcome(old, p, q, sign), outcome(new, p, q, sign)
                if was is None:
                    continue
                if now is None or len(was) != len(now):
                    return f"fails for {p}, {q}, {sign}"
                if any(a.tobytes() != b.tobytes() for a, b in zip(was, now, strict=True)):
                    return f"differs for {p}, {q}, {sign}"
    return ""


@pytest.mark.parametrize("start", range(0, 120, 10))
def test_random_nodes_stay_what_they_are(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    for seed in range(start, start + 10):
        text = program(seed)
        done = fixed(text)
        assert not [r for r in done.refused if r.kind in ("internal error", "not clean after the fix")], (
            seed,
            done.refused,
        )
        assert compare(text, done.text) == "", (seed, done.text)


def test_enough_of_them_are_fixed() -> None:
    assert sum(bool(fixed(program(seed)).applied) for seed in range(60)) > 10
