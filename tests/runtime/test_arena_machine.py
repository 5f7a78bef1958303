"""Pin, unpin, reset and overflow in any order, against a model that is a dictionary."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from torch import Tensor

from cachelint.runtime import Arena, RuntimeContractError, UseAfterReset
from cachelint.runtime.span import span_of

ALIGNMENT = 64
CAPACITY = 4096
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


class Modelled:
    """What the machine knows of one allocation."""

    def __init__(self, tensor: Tensor, value: int) -> None:
        self.tensor = tensor
        self.value = value
        self.pins = 0
        self.alive = True
        self.kept = False
        """Overflow memory that was below a marked floor."""
        self.poisoned_now = False

    def intact(self) -> bool:
        return bool((self.tensor == torch.tensor(self.value).to(self.tensor.dtype)).all())


class ArenaMachine(RuleBasedStateMachine):
    """Every allocation holds a number of its own; the numbers say whether memory was given out twice."""

    allocations = Bundle("allocations")
    device = "cpu"

    @initialize(poison=st.booleans())
    def start(self, poison: bool) -> None:
        self.poison = poison
        self.arena = Arena(CAPACITY, (self.device,), alignment=ALIGNMENT, poison=poison)
        self.known: list[Modelled] = []
        self.forgotten: list[int] = []
        """Ends of slab memory whose tensor is gone; it is taken back by the next reset, not before."""
        self.kept_below = 0
        self.count = 0
        self.high_water = 0

    @rule(target=allocations, elements=st.integers(1, 300), dtype=st.sampled_from(DTYPES))
    def allocate(self, elements: int, dtype: torch.dtype) -> Modelled:
        self.count += 1
        value = self.count % 100 + 1
        tensor = self.arena.move(torch.full((elements,), value, device=self.device).to(dtype))
        made = Modelled(tensor, value)
        self.known.append(made)
        for other in self.known:
            other.poisoned_now = False  # may be overlaid from now on
        return made

    @rule(one=allocations, start=st.integers(0, 10))
    def pin(self, one: Modelled, start: int) -> None:
        view = one.tensor[min(start, len(one.tensor) - 1) :]
        if one.alive:
            assert self.arena.pin(view) is span_of(one.tensor)
            one.pins += 1
        else:
            with pytest.raises(UseAfterReset):
                self.arena.pin(view)

    @rule(one=allocations)
    def unpin(self, one: Modelled) -> None:
        if one.pins:
            self.arena.unpin(one.tensor)
            one.pins -= 1
        else:
            with pytest.raises(RuntimeContractError):
                self.arena.unpin(one.tensor)

    @rule()
    def reset(self) -> None:
        dying = [one for one in self.known if one.alive and not one.pins and not self._below_floor(one)]
        forgotten = [end for end in self.forgotten if end > self.kept_below]
        assert self.arena.reset() == len(dying) + len(forgotten)
        self.forgotten = [end for end in self.forgotten if end <= self.kept_below]
        for one in dying:
            one.alive = False
            one.poisoned_now = self.poison
        ends = [self._end(one) for one in self.known if one.pins]
        assert self.arena.stats().floor == max([self.kept_below, *ends])

    @rule()
    def mark_floor(self) -> None:
        self.arena.mark_floor()
        self.kept_below = self.arena.stats().used
        for one in self.known:
            if one.alive and self._offset(one) < 0:
                one.kept = True

    @rule(one=consumes(allocations))
    def forget(self, one: Modelled) -> None:
        """The program drops its last reference, pinned or not."""
        while one.pins:
            self.unpin(one)
        self.known.remove(one)
        if one.alive and self._offset(one) >= 0:
            self.forgotten.append(self._end(one))
        del one.tensor  # the bundle may hold the rest of it a while longer

    @rule(one=allocations)
    def write(self, one: Modelled) -> None:
        if one.alive:
            self.count += 1
            one.value = self.count % 100 + 1
            with self.arena.place():
                one.tensor.fill_(one.value)

    @rule(one=allocations)
    def use(self, one: Modelled) -> None:
        if not one.alive:
            with self.arena.place(), pytest.raises(UseAfterReset):
                one.tensor.clone()

    def _offset(self, one: Modelled) -> int:
        found = span_of(one.tensor)
        assert found is not None
        return found.offset

    def _end(self, one: Modelled) -> int:
        found = span_of(one.tensor)
        assert found is not None
        return -(-found.end // ALIGNMENT) * ALIGNMENT

    def _below_floor(self, one: Modelled) -> bool:
        if self._offset(one) < 0:
            return one.kept
        return self._end(one) <= self.kept_below

    @invariant()
    def living_memory_holds_its_number(self) -> None:
        for one in getattr(self, "known", ()):
            if one.alive:
                assert one.intact()

    @invariant()
    def dead_memory_is_poison_until_it_is_given_out_again(self) -> None:
        for one in getattr(self, "known", ()):
            if one.poisoned_now and one.tensor.is_floating_point():
                assert one.tensor.isnan().all()
            elif one.poisoned_now:
                assert not one.intact()

    @invariant()
    def living_memory_does_not_overlap(self) -> None:
        known = [one for one in getattr(self, "known", ()) if one.alive and self._offset(one) >= 0]
        ranges = sorted((self._offset(one), self._end(one)) for one in known)
        for (_, end), (start, _) in itertools.pairwise(ranges):
            assert end <= start
        assert all(start % ALIGNMENT == 0 and end <= CAPACITY for start, end in ranges)

    @invariant()
    def counts_are_right(self) -> None:
        if not hasattr(self, "arena"):
            return
        stats = self.arena.stats()
        assert stats.pins == sum(one.pins for one in self.known)
        pinned = [one for one in self.known if one.pins]
        assert stats.pinned_bytes == sum(one.tensor.untyped_storage().nbytes() for one in pinned)
        assert stats.floor <= stats.used <= stats.high_water <= stats.capacity
        assert stats.high_water >= self.high_water
        self.high_water = stats.high_water

    def teardown(self) -> None:
        if not hasattr(self, "arena"):
            return
        for one in self.known:
            while one.pins:
                self.unpin(one)
        self.arena.reset()
        assert self.arena.stats().pinned_bytes == 0
        assert self.arena.stats().used == self.kept_below


TestArenaMachine = ArenaMachine.TestCase
TestArenaMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class CudaArenaMachine(ArenaMachine):
    device = "cuda"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
class TestArenaMachineOnCuda(CudaArenaMachine.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
