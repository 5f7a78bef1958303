"""Saved sets: whose, how often pinned, and that every pin is taken back once."""

from __future__ import annotations

import threading

import pytest
import torch

from cachelint.runtime import Arena, UseAfterReset
from cachelint.runtime.saver import NodeSaver, SavedSets, SharedSaver


@pytest.fixture
def arena(device: str) -> Arena:
    return Arena(1 << 16, (device,), poison=True)


def made(arena: Arena, device: str, *shape: int) -> torch.Tensor:
    with arena.place():
        return torch.ones(shape, device=device)


def test_each_save_is_one_entry_and_one_pin(arena: Arena, device: str) -> None:
    sets, x = SavedSets(), made(arena, device, 4)
    saver = NodeSaver(sets, "a")
    saver.save_for_backward(x, None, x)
    NodeSaver(sets, "b").save_for_backward(x)
    assert len(sets) == 3
    assert arena.stats().pins == 3
    assert sets.release("a") == 2
    assert arena.stats().pins == 1
    arena.reset()
    assert x.tolist() == [1.0] * 4
    assert sets.release("a") == 0
    assert sets.release_all() == 1
    assert arena.stats().pins == 0
    arena.reset()
    assert x.isnan().all()


def test_a_view_pins_the_whole_storage_that_owns_it(arena: Arena, device: str) -> None:
    sets, x = SavedSets(), made(arena, device, 8)
    NodeSaver(sets, "a").save_for_backward(x[5:7], x.view(2, 4)[1], x.detach())
    assert arena.stats().pins == 3
    assert arena.stats().pinned_bytes == 32
    arena.reset()
    assert x.tolist() == [1.0] * 8
    sets.release_all()
    assert arena.stats().pinned_bytes == 0


def test_memory_outside_the_arena_is_recorded_and_not_pinned(arena: Arena, device: str) -> None:
    sets, x = SavedSets(), torch.ones(3, device=device)
    NodeSaver(sets, "a").save_for_backward(x)
    assert sets.tensors("a")[0] is x
    assert arena.stats().pins == 0


def test_saving_is_not_copying(arena: Arena, device: str) -> None:
    sets, x = SavedSets(), made(arena, device, 2)
    NodeSaver(sets, "a").save_for_backward(x)
    x.mul_(3)
    assert sets.tensors("a")[0].tolist() == [3.0, 3.0]


def test_saving_dead_memory_is_refused_and_leaves_the_count_right(arena: Arena, device: str) -> None:
    sets, dead = SavedSets(), made(arena, device, 2)
    arena.reset()
    alive = made(arena, device, 2)
    with pytest.raises(UseAfterReset, match="pinned after a reset had taken it back"):
        NodeSaver(sets, "a").save_for_backward(alive, dead)
    assert arena.stats().pins == 1
    sets.release_all()
    assert arena.stats().pins == 0


def test_the_pin_goes_back_to_the_storage_that_was_saved(arena: Arena, device: str) -> None:
    sets, x = SavedSets(), made(arena, device, 2)
    kept = x.view(2)
    NodeSaver(sets, "a").save_for_backward(x)
    x.set_(torch.ones(5, device=device))
    sets.release_all()
    assert arena.stats().pins == 0
    arena.reset()
    assert kept.isnan().all()


def test_attribution_holds_on_threads(arena: Arena, device: str) -> None:
    sets = SavedSets()
    owner = threading.local()
    shared = SharedSaver(sets, lambda: getattr(owner, "name", None), "nobody")

    def work(name: str) -> None:
        owner.name = name
        for _ in range(200):
            shared.save_for_backward(made(arena, device, 1))
            NodeSaver(sets, f"own {name}").save_for_backward(made(arena, device, 1))

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        assert sets.release(f"t{i}") == 200
        assert sets.release(f"own t{i}") == 200
    assert sets.release_all() == 0
    assert arena.stats().pins == 0
