"""The allocator, poison, and ordinary torch code running in an arena."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cachelint.runtime import Arena, Node, RuntimeContractError, UseAfterReset, outside_arena
from cachelint.runtime.fill import poison_byte
from cachelint.runtime.span import Span, span_of
from cachelint.runtime.stale import stale_fields

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.complex64,
    torch.complex128,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


@pytest.fixture
def arena(device: str) -> Arena:
    return Arena(1 << 20, (device,), poison=True)


def span(tensor: Tensor) -> Span:
    found = span_of(tensor)
    assert found is not None
    return found


# ---- bump allocation


def test_allocations_are_aligned_and_follow_each_other(device: str) -> None:
    for alignment in (16, 256, 4096):
        arena = Arena(1 << 16, (device,), alignment=alignment)
        with arena.place():
            tensors = [torch.ones(n, device=device) for n in (1, 100, 3, 5)]
        offsets = [span(t).offset for t in tensors]
        rounded = [-(-4 * n // alignment) * alignment for n in (1, 100, 3, 5)]
        assert offsets == [sum(rounded[:i]) for i in range(4)]
        assert all(t.data_ptr() % alignment == 0 for t in tensors)
        assert arena.stats().used == arena.stats().high_water == sum(rounded)


@pytest.mark.parametrize("alignment", [0, 8, 100])
def test_a_silly_alignment_is_refused(alignment: int) -> None:
    with pytest.raises(ValueError, match=f"at least 16, not {alignment}"):
        Arena(1024, alignment=alignment)


def test_an_arena_without_a_device_is_refused() -> None:
    with pytest.raises(ValueError, match="an arena needs a device"):
        Arena(1024, ())


def test_a_tensor_has_a_storage_of_its_own(arena: Arena, device: str) -> None:
    with arena.place():
        a, b = torch.ones(4, device=device), torch.zeros(4, device=device)
    assert a.storage_offset() == b.storage_offset() == 0
    assert a.untyped_storage().nbytes() == 16
    assert a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr()
    assert a.as_strided((2,), (1,), 1).tolist() == [1.0, 1.0]  # absolute offsets mean the tensor's own storage


def test_after_a_reset_the_memory_is_given_out_again(arena: Arena, device: str) -> None:
    with arena.place():
        first = torch.ones(100, device=device)
    address = first.data_ptr()
    assert arena.reset() == 1
    with arena.place():
        second = torch.ones(50, device=device)
    assert second.data_ptr() == address
    assert arena.epoch == 1
    assert (span(first).epoch, span(second).epoch) == (0, 1)
    assert (span(first).alive, span(second).alive) == (False, True)


def test_a_reset_rewinds_to_the_end_of_the_highest_pin(arena: Arena, device: str) -> None:
    with arena.place():
        a, b, c = (torch.full((64,), float(i), device=device) for i in range(3))
    pinned = arena.pin(b)
    assert pinned is not None
    arena.reset()
    stats = arena.stats()
    assert stats.floor == stats.used == 512
    assert a.isnan().all()  # a hole below the floor is dead, too
    assert c.isnan().all()
    assert b.tolist() == [1.0] * 64
    with arena.place():
        assert span(torch.ones(1, device=device)).offset == 512
    pinned.unpin()
    assert b.tolist() == [1.0] * 64  # lives until the next reset
    arena.reset()
    assert arena.stats().used == 0
    assert b.isnan().all()


def test_pins_are_counted(arena: Arena, device: str) -> None:
    with arena.place():
        x = torch.ones(8, device=device)
    for _ in range(3):
        arena.pin(x[2:])
    assert (arena.stats().pins, arena.stats().pinned_bytes) == (3, 32)
    for left in (2, 1, 0):
        arena.reset()
        assert x.tolist() == [1.0] * 8
        arena.unpin(x)
        assert arena.stats().pins == left
    assert arena.stats().pinned_high_water == 32
    with pytest.raises(RuntimeContractError, match="unpinned more often than pinned"):
        arena.unpin(x)


def test_pinning_dead_memory_and_memory_of_others(arena: Arena, device: str) -> None:
    with arena.place():
        x = torch.ones(8, device=device)
    arena.reset()
    with pytest.raises(UseAfterReset, match="pinned after a reset"):
        arena.pin(x)
    other = torch.ones(1, device=device)
    assert arena.pin(other) is None
    assert not arena.owns(other)
    with pytest.raises(RuntimeContractError, match="not memory of this arena"):
        arena.unpin(other)
    assert Arena(1024, (device,)).pin(x) is None


def test_a_marked_floor_is_never_taken_back(arena: Arena, device: str) -> None:
    with arena.place():
        weight = torch.ones(8, device=device)
        arena.mark_floor()
        temporary = torch.ones(8, device=device)
    for _ in range(2):
        arena.reset()
    assert weight.tolist() == [1.0] * 8
    assert temporary.isnan().all()
    assert arena.stats().floor == 256


def test_two_devices_have_a_slab_each() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    arena = Arena(1 << 16, ("cpu", "cuda"), poison=True)
    with arena.place():
        a, b = torch.ones(3), torch.ones(3, device="cuda")
    assert arena.stats("cpu").allocations == arena.stats("cuda").allocations == 1
    arena.reset()
    assert a.isnan().all()
    assert b.isnan().all()


def test_devices_without_a_slab_are_left_alone(arena: Arena) -> None:
    with arena.place():
        x = torch.ones(3, device="meta") + 1
    assert not arena.owns(x)


def test_a_reset_without_rewinding_keeps_poison_from_being_laid_over(arena: Arena, device: str) -> None:
    with arena.place():
        x = torch.ones(8, device=device)
        arena.reset(rewind=False)
        torch.ones(8, device=device)
    assert x.isnan().all()
    assert (arena.stats().used, arena.stats().floor) == (512, 0)
    arena.reset()
    assert arena.stats().used == 0


# ---- overflow


def test_what_finds_no_room_comes_from_the_ordinary_allocator(device: str) -> None:
    arena = Arena(1024, (device,), poison=True)
    with arena.place():
        fits = torch.ones(150, device=device)
        over = torch.ones(200, device=device)
        small = torch.ones(1, device=device)  # still fits after the large one did not
    assert [span(t).offset for t in (fits, over, small)] == [0, -1, 768]
    stats = arena.stats()
    assert (stats.overflows, stats.overflow_bytes, stats.used, stats.capacity) == (1, 1024, 1024, 1024)
    assert arena.owns(over)
    assert over.tolist() == [1.0] * 200


def test_overflow_obeys_the_same_rules(device: str) -> None:
    arena = Arena(0, (device,), poison=True)
    with arena.place():
        pinned, dead = torch.ones(4, device=device), torch.ones(4, device=device)
    arena.pin(pinned[1:])
    arena.reset()
    assert pinned.tolist() == [1.0] * 4
    assert dead.isnan().all()
    arena.unpin(pinned)
    arena.reset()
    assert pinned.isnan().all()
    with pytest.raises(UseAfterReset), arena.place():
        pinned.add(1)


def test_overflow_is_freed_when_nobody_holds_it() -> None:
    arena = Arena(0)
    with arena.place():
        x = torch.ones(4)
        ref = weakref.ref(x.untyped_storage())
        assert arena.stats().live_spans == 1
        del x
    assert ref() is None
    assert arena.stats().live_spans == 0


def test_overflow_below_a_marked_floor_stays() -> None:
    arena = Arena(0, poison=True)
    with arena.place():
        weight = torch.ones(4)
    arena.mark_floor()
    arena.reset()
    assert weight.tolist() == [1.0] * 4


# ---- poison


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("capacity", [1 << 16, 0])
def test_poison_fills_every_element(device: str, dtype: torch.dtype, capacity: int) -> None:
    arena = Arena(capacity, (device,), poison=True)
    x = arena.move(torch.zeros(33, device=device).to(dtype))
    ones = arena.move(torch.ones(33, device=device).to(torch.bool))
    before = x.to(torch.complex128 if dtype.is_complex else torch.float64).cpu()
    arena.reset()
    after = x.to(torch.complex128 if dtype.is_complex else torch.float64).cpu()
    if dtype.is_floating_point or dtype.is_complex:
        assert after.isnan().all()
    elif dtype is torch.bool:
        assert x.all()
        assert not ones.any()
    elif device == "cpu":
        assert (after != before).all()
        assert len(set(after.tolist())) == 1
    else:
        assert (after == 0).all()  # an index out of range would end the context
    assert arena.stats().poisoned_bytes == x.numel() * x.itemsize + 33


def test_the_poison_of_one_float_is_nan_in_every_other() -> None:
    byte = poison_byte(torch.float64, "cpu")
    assert byte is not None
    block = torch.full((64,), byte, dtype=torch.uint8)
    for dtype in (d for d in DTYPES if d.is_floating_point and "fnuz" not in str(d)):
        assert block.view(dtype).to(torch.float64).isnan().all(), dtype


def test_uninitialised_memory_is_poison_again_on_reuse(arena: Arena, device: str) -> None:
    with arena.place():
        torch.ones(64, device=device)
    arena.reset()
    with arena.place():
        fresh = [
            torch.empty(4, device=device),
            torch.empty_like(torch.ones(3, device=device)),
            torch.ones(2, device=device).new_empty(5),
            torch.empty_strided((2, 3), (1, 2), device=device, dtype=torch.float64),
        ]
        assert torch.empty(3, dtype=torch.bool, device=device).all()
    assert all(t.isnan().all() for t in fresh)


def test_without_poison_nothing_is_written(device: str) -> None:
    arena = Arena(1 << 16, (device,))
    assert not arena.poison
    with arena.place():
        x = torch.ones(4, device=device)
    arena.reset()
    assert x.tolist() == [1.0] * 4
    assert arena.stats().poisoned_bytes == 0


# ---- use after reset


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + 1,
        lambda x: x.add_(1),
        lambda x: x.view(-1),
        lambda x: torch.cat([torch.ones(2, 2, device=x.device), x]),
        lambda x: torch.add(torch.ones(2, 2, device=x.device), 1, out=x),
        lambda x: x.sum().item(),
        lambda x: torch.ones(2, 2, device=x.device).index_put_(
            (torch.zeros(1, dtype=torch.long, device=x.device),), x[:1]
        ),
    ],
)
def test_any_use_after_a_reset_raises(arena: Arena, device: str, use: Callable[[Tensor], object]) -> None:
    with arena.place():
        x = torch.ones(2, 2, device=device)
        use(x)
    arena.reset()
    with arena.place(), pytest.raises(UseAfterReset, match=r"epoch 0 and taken back by a reset \(now epoch 1\)"):
        use(x)


def test_shape_and_identity_of_dead_memory_may_be_read(arena: Arena, device: str) -> None:
    with arena.place():
        x = torch.ones(2, 2, device=device)
    arena.reset()
    with arena.place():
        assert x.shape == (2, 2)
        assert x.dtype is torch.float32


def test_on_stale_allow_lets_the_poison_through(arena: Arena, device: str) -> None:
    with arena.place():
        x = torch.ones(2, device=device)
    arena.reset()
    with arena.place("allow"):
        assert (x + 1).isnan().all()


class Holder(Node):
    def __init__(self, x: Tensor) -> None:
        self.plain = x
        self.parts = {"a": [x[1:]]}
        self.inner = Inner(x.view(-1))
        with outside_arena():
            self.fine = torch.ones(1)
        captured = x * 1
        self.closure = lambda: captured


class Inner(Node):
    def __init__(self, x: Tensor) -> None:
        self.weights = x


def test_stale_fields_are_named_wherever_they_hide(arena: Arena, device: str) -> None:
    with arena.place():
        node = Holder(torch.ones(3, device=device))
        assert stale_fields(node) == ()
    arena.reset()
    assert [stale.path for stale in stale_fields(node)] == [
        "plain",
        "parts['a'][0]",
        "inner.weights",
        "closure.<closure captured>",
    ]


# ---- placement: ordinary code, unchanged


def programs() -> dict[str, Callable[[str], object]]:
    def mlp(device: str) -> object:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
        )
        model.to(device)
        y = model(torch.randn(5, 4).to(device))
        y.square().mean().backward()
        return [y, *(p.grad for p in model.parameters())]

    def transformer(device: str) -> object:
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).to(device)
        y = layer(torch.randn(2, 5, 8).to(device))
        y.sum().backward()
        return [y, *(p.grad for p in layer.parameters())]

    def convolution(device: str) -> object:
        torch.manual_seed(0)
        x = torch.randn(2, 3, 8, 8).to(device).to(memory_format=torch.channels_last).requires_grad_()
        conv = torch.nn.Conv2d(3, 4, 3).to(device)
        y = torch.nn.functional.max_pool2d(conv(x).relu(), 2)
        y.sum().backward()
        return [y, x.grad]

    def training(device: str) -> object:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 3).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 3, device=device)).pow(2).sum().backward()
            optimizer.step()
        return list(model.parameters())

    def indexing(device: str) -> object:
        x = torch.arange(12.0, device=device).reshape(3, 4)
        x[1] = -1
        x[x > 8] = 0
        values, indices = x.sort(1, descending=True)
        return [x, values, indices, x.topk(2).values, x.unique(), torch.where(x > 0, x, -x), x.nonzero()]

    def views(device: str) -> object:
        x = torch.arange(24.0, device=device)
        a = x.view(2, 3, 4).transpose(0, 2)
        b, c = a.split([1, 3])
        b.mul_(2)
        e = torch.ones(1, device=device).expand(3).clone()
        return [x, a, b, c, e, a.contiguous(), a[..., None].expand(-1, -1, -1, 2), x.unfold(0, 4, 2)]

    def out_and_resize(device: str) -> object:
        out = torch.empty(0, device=device)
        torch.add(torch.ones(2, 2, device=device), 1, out=out)
        grown = torch.zeros(3, device=device)
        grown.resize_(10).fill_(1)
        return [out, grown]

    def complex_numbers(device: str) -> object:
        x = torch.fft.rfft(torch.arange(8.0, device=device))
        return [x, x.conj() * 2, x.imag, torch.view_as_real(x)]

    def scalars(device: str) -> object:
        return [torch.tensor([1, 2, 3], device=device).sum().item(), torch.tensor(2.5, device=device) * 2, torch.eye(3)]

    def checkpointed(device: str) -> object:
        x = torch.arange(4.0, device=device, requires_grad=True)
        y = torch.utils.checkpoint.checkpoint(lambda v: (v.sin() * v).exp(), x, use_reentrant=False)
        y.sum().backward()
        return [y, x.grad]

    def second_derivative(device: str) -> object:
        x = torch.arange(1.0, 4.0, device=device, requires_grad=True)
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x)
        return [g, h]

    def linear_algebra(device: str) -> object:
        a = torch.arange(9.0, device=device).reshape(3, 3) + 10 * torch.eye(3, device=device)
        q, r = torch.linalg.qr(a)
        return [torch.linalg.solve(a, a.T), q @ r, torch.linalg.eigvalsh(a + a.T)]

    def lstm(device: str) -> object:
        torch.manual_seed(0)
        model = torch.nn.LSTM(3, 4).to(device)
        y, (h, c) = model(torch.randn(5, 2, 3).to(device))
        (y.sum() + h.sum() + c.sum()).backward()
        return [y, h, c, *(p.grad for p in model.parameters())]

    def functional(device: str) -> object:
        x = torch.arange(6.0, device=device).reshape(2, 3)
        rows = torch.func.vmap(torch.func.grad(lambda v: (v.sin() * v).sum()))(x)
        value, slope = torch.func.jvp(torch.exp, (x,), (torch.ones_like(x),))
        return [rows, value, slope, torch.func.vmap(lambda a, b: a @ b, in_dims=(0, None))(x, x[0])]

    def inference(device: str) -> object:
        with torch.inference_mode():
            x = torch.arange(6.0, device=device)
            x.mul_(2)
            return [x.view(2, 3) @ x.view(3, 2), x[1:], x.clone()]

    def attention(device: str) -> object:
        torch.manual_seed(0)
        q, k, v = (torch.randn(2, 2, 5, 8).to(device).requires_grad_() for _ in range(3))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y.sum().backward()
        return [y, q.grad, k.grad, v.grad]

    def custom_function(device: str) -> object:
        class Cube(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
                ctx.save_for_backward(x)
                square = x * x
                ctx.mark_non_differentiable(square)
                return x * square, square

            @staticmethod
            def backward(ctx: Any, grad: Tensor, _: Tensor) -> Tensor:
                (x,) = ctx.saved_tensors
                return grad * 3 * x * x

        x = torch.arange(4.0, device=device, requires_grad=True)
        y, square = Cube.apply(x)
        y.sum().backward()
        return [y, square, x.grad]

    def sparse(device: str) -> object:
        s = torch.eye(3, device=device).to_sparse()
        return [(s @ torch.ones(3, 2, device=device)), s.to_dense()]

    return {name: program for name, program in locals().items() if callable(program)}


def flat(value: object) -> list[object]:
    return [x for v in value for x in flat(v)] if isinstance(value, list | tuple) else [value]


@pytest.mark.parametrize("name", sorted(programs()))
@pytest.mark.parametrize("capacity", [1 << 22, 2048, 0])
def test_ordinary_code_runs_unchanged(device: str, name: str, capacity: int) -> None:
    program = programs()[name]
    want = flat(program(device))
    torch.cuda.empty_cache()
    arena = Arena(capacity, (device,), poison=True)
    with arena.place():
        got = flat(program(device))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            assert a.stride() == b.stride()
            assert a.storage_offset() == b.storage_offset()
            # CUDA may pick another algorithm for another alignment.
            tolerance = 1e-5 if device == "cpu" else 1e-3
            assert torch.allclose(a.detach(), b.detach(), rtol=tolerance, atol=tolerance / 100, equal_nan=True)
        else:
            assert a == b
    stats = arena.stats()
    assert stats.allocations + stats.overflows > 0
    assert stats.used <= stats.capacity


def test_every_new_tensor_is_placed_and_views_stay_views(arena: Arena, device: str) -> None:
    outside = torch.ones(4, device=device)
    with arena.place():
        made = [
            torch.ones(2, device=device),
            torch.tensor([1.0], device=device),
            outside + 1,
            outside.clone(),
            outside.to(torch.float16),
            outside > 0,
            torch.arange(3, device=device),
            torch.randn(2, device=device),
        ]
        views = [outside.view(2, 2), outside[1:], outside.detach(), outside.expand(2, 4), outside.mul_(1)]
    assert all(arena.owns(t) for t in made)
    assert not any(arena.owns(t) for t in views)
    assert all(t.untyped_storage().data_ptr() == outside.data_ptr() for t in views)


def test_results_that_share_a_storage_still_do(arena: Arena) -> None:
    library = torch.library.Library("cachelint_test", "DEF")
    library.define("two_of_one(Tensor x) -> (Tensor, Tensor)")

    def two_of_one(x: Tensor) -> tuple[Tensor, Tensor]:
        block = torch.arange(6.0)
        return block[:2], block[1:5].view(2, 2).t()

    library.impl("two_of_one", two_of_one, "CompositeExplicitAutograd")
    with arena.place():
        a, b = torch.ops.cachelint_test.two_of_one(torch.ones(1))
        assert arena.owns(a)
        assert arena.owns(b)
        a[1] = 9
    assert b.tolist() == [[9.0, 3.0], [2.0, 4.0]]
    library._destroy()


def test_memory_of_numpy_is_not_moved(arena: Arena) -> None:
    array = np.ones(3)
    with arena.place():
        tensors = [torch.from_numpy(array), torch.as_tensor(array)]
    array[0] = 7
    assert [t[0].item() for t in tensors] == [7.0, 7.0]
    assert not any(arena.owns(t) for t in tensors)


def test_outside_arena_is_ordinary_memory(arena: Arena, device: str) -> None:
    with arena.place():
        with outside_arena(), outside_arena():
            kept = torch.ones(3, device=device)
        placed = torch.ones(3, device=device)
    assert not arena.owns(kept)
    assert arena.owns(placed)


def test_placement_is_per_thread_and_allocation_is_not(device: str) -> None:
    arena = Arena(1 << 22, (device,), poison=True)
    found: dict[int, list[Tensor]] = {}
    outside: list[Tensor] = []

    def work(number: int) -> None:
        outside.append(torch.ones(1, device=device))
        with arena.place():
            found[number] = [torch.full((16,), float(number), device=device) for _ in range(100)]

    with arena.place():
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not any(arena.owns(t) for t in outside)
    spans = sorted(span(t).offset for tensors in found.values() for t in tensors)
    assert len(set(spans)) == 400
    assert all(t.tolist() == [float(i)] * 16 for i, tensors in found.items() for t in tensors)


def test_nested_places_share_the_memory_once(arena: Arena, device: str) -> None:
    with arena.place(), arena.place():
        x = torch.ones(4, device=device) + 1
    assert x.tolist() == [2.0] * 4
    assert arena.stats().allocations == 2


def test_the_arena_outlives_its_name() -> None:
    def make() -> Tensor:
        arena = Arena(1 << 12)
        with arena.place():
            return torch.ones(8)

    x = make()
    torch.full((1 << 12,), 3.0)
    assert x.tolist() == [1.0] * 8


def test_move_copies(arena: Arena, device: str) -> None:
    x = torch.ones(3, device=device)
    y = arena.move(x)
    x.zero_()
    assert arena.owns(y)
    assert y.tolist() == [1.0] * 3
