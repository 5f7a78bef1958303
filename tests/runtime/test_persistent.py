"""Memory that outlives the step, until it is invalidated."""

from __future__ import annotations

import gc

import pytest
import torch

from cachelint.runtime import Arena, Node, Parameter, Persistent


@pytest.fixture
def arena(device: str) -> Arena:
    return Arena(1 << 16, (device,), poison=True)


def test_pinned_over_resets_until_invalidated(arena: Arena, device: str) -> None:
    cache = Persistent()
    with arena.place():
        value = cache.set(torch.ones(3, device=device))
    for _ in range(3):
        arena.reset()
        assert cache.get() is value
        assert value.tolist() == [1.0] * 3
    cache.invalidate()
    assert cache.get() is None
    assert arena.stats().pins == 0
    arena.reset()
    assert value.isnan().all()


def test_set_replaces_and_unpins(arena: Arena, device: str) -> None:
    cache = Persistent()
    with arena.place():
        cache.set(torch.ones(3, device=device))
        second = cache.set(torch.full((3,), 2.0, device=device))
    assert arena.stats().pins == 1
    arena.reset()
    assert cache.get() is second
    assert second.tolist() == [2.0] * 3


def test_set_to_a_view_of_what_is_kept(arena: Arena, device: str) -> None:
    cache = Persistent()
    with arena.place():
        first = cache.set(torch.arange(4.0, device=device))
    arena.reset()
    cache.set(first[1:])
    arena.reset()
    kept = cache.get()
    assert kept is not None
    assert kept.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("update", ["in place", "replaced", "through data"])
def test_a_weight_update_invalidates(update: str) -> None:
    weight = Parameter(torch.ones(3))
    cache = Persistent(weight)
    calls = []

    def make() -> torch.Tensor:
        calls.append(1)
        return weight.value * 2

    assert cache.fetch(make).tolist() == [2.0] * 3
    assert cache.fetch(make).tolist() == [2.0] * 3
    assert len(calls) == 1
    if update == "in place":
        weight.value.sub_(0.5)
    elif update == "replaced":
        weight.value = weight.value - 0.5
    else:
        weight.value.data.sub_(0.5)  # goes round the version counter: nobody can see it
        cache.invalidate()
    assert cache.fetch(make).tolist() == [1.0] * 3
    assert len(calls) == 2


def test_a_weight_update_unpins(arena: Arena, device: str) -> None:
    weight = Parameter(torch.ones(3, device=device))
    cache = Persistent(weight)
    with arena.place():
        cache.set(weight.value * 2)
    assert arena.stats().pins == 1
    weight.value.add_(1)
    assert cache.get() is None
    assert arena.stats().pins == 0


def test_reading_a_weight_does_not_invalidate() -> None:
    weight = Parameter(torch.ones(3))
    cache = Persistent(weight)
    cache.set(weight.value * 2)
    weight.value.sum()
    weight.accumulate(torch.ones(3))
    assert cache.get() is not None


def test_the_pin_ends_with_the_object(arena: Arena, device: str) -> None:
    cache = Persistent()
    with arena.place():
        cache.set(torch.ones(3, device=device))
    assert arena.stats().pins == 1
    del cache
    gc.collect()
    assert arena.stats().pins == 0


def test_weights_made_in_inference_mode_have_no_version_and_are_watched_by_identity() -> None:
    with torch.inference_mode():
        weight = Parameter(torch.ones(3))
    cache = Persistent(weight)
    cache.set(torch.ones(1))
    assert cache.get() is not None
    weight.value = torch.ones(3)
    assert cache.get() is None


class Keeper(Node):
    def __init__(self) -> None:
        self.weight = Parameter(torch.ones(2))
        self.state = Persistent(name="state")
        self.derived = Persistent(self.weight)
        self.nested = [{"deep": Persistent()}]


def test_a_node_that_moves_takes_what_is_kept_along() -> None:
    arena = Arena(1 << 12)
    node = Keeper()
    with arena.place():
        node.state.set(torch.tensor([1.0, 2.0]))
    node.nested[0]["deep"].set(torch.tensor([3]))
    node.derived.set(node.weight.value * 2)
    node.to(dtype=torch.float64)
    state, deep = node.state.get(), node.nested[0]["deep"].get()
    assert state is not None
    assert state.dtype is torch.float64
    assert state.tolist() == [1.0, 2.0]
    assert arena.stats().pins == 0
    assert deep is not None
    assert deep.dtype is torch.int64
    assert node.derived.get() is None, "the weight that it was derived from is another tensor now"
