"""The meter against sums done by hand, on the CPU, the meta device and fake tensors."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from cachelint.runtime.meter import BEFORE, Meter
from cachelint.runtime.storages import rounded

KIB = 1024
DEVICES = ["cpu", "meta"]


def block(*shape: int, size: int = 4) -> int:
    """Bytes of a float32 tensor, by the definition: whole blocks of 512."""
    n = size
    for each in shape:
        n *= each
    return -(-n // 512) * 512


@pytest.mark.parametrize(("nbytes", "expected"), [(0, 0), (1, 512), (512, 512), (513, 1024), (4_153_728, 4_153_856)])
def test_rounds_up_to_whole_blocks(nbytes: int, expected: int) -> None:
    assert rounded(nbytes) == expected


@pytest.mark.parametrize("device", DEVICES)
def test_counts_what_is_alive_and_what_was(device: str) -> None:
    with Meter() as meter:
        a = torch.ones(300, device=device)
        b = torch.ones(1000, device=device)
        del a
        c = torch.ones(10, device=device)
    assert meter.peak_bytes == block(300) + block(1000)
    assert meter.current_bytes == block(1000) + block(10)
    assert meter.report().peak_event is not None
    assert meter.report().peak_event.index == 1
    del b, c
    assert meter.current_bytes == 0


@pytest.mark.parametrize("device", DEVICES)
def test_the_peak_names_operator_line_and_owners(device: str) -> None:
    def work(x: Tensor) -> Tensor:
        doubled = x + x
        small = doubled[:4].clone()
        del doubled
        return small

    x = torch.ones(1000, device=device)
    first = work.__code__.co_firstlineno
    with Meter({"x": x}) as meter:
        work(x)
    report = meter.report()
    assert report.peak_event is not None
    assert report.peak_event.site.op == "aten.clone.default"
    assert report.line is not None
    assert (report.line.line, report.line.function.rpartition(".")[2]) == (first + 2, "work")
    assert [(live.owner, live.bytes) for live in report.live] == [("x", 4096), ("doubled", 4096), ("small", 512)]
    made = report.live[1].site
    assert made is not None
    assert made.line is not None
    assert made.line.line == first + 1
    assert made.line.text == "doubled = x + x"


def test_the_owner_is_looked_for_through_a_helper_that_returns_it() -> None:
    def helper(x: Tensor) -> Tensor:
        return x + 1

    def work(x: Tensor) -> Tensor:
        held = helper(x)
        return held * 2

    with Meter() as meter:
        result = work(torch.ones(500))
    assert [live.owner for live in meter.report().live if live.site and live.site.op == "aten.add.Tensor"] == ["held"]
    assert result.numel() == 500


def test_a_step_on_the_way_has_no_owner() -> None:
    w = torch.randn(40, 500, requires_grad=True)

    def work(x: Tensor) -> Tensor:
        held = (x @ w).exp().t()  # exp saves its result, of which held is a view; the product is saved by nobody
        other = held.sin() * held.cos()
        return other.sum()

    with Meter({"w": w}) as meter:
        loss = work(torch.randn(30, 40))
    assert loss.ndim == 0
    (product,) = [event.index for event in meter.report().timeline if event.site.op == "aten.mul.Tensor"]
    live = [each for each in meter.live_at(product) if each.shape != (30, 40)]
    assert {each.owner: each.site.op for each in live if each.site is not None and each.owner} == {
        "held": "aten.exp.default",
        "other": "aten.mul.Tensor",
    }
    assert sorted(each.owner for each in live) == ["", "", "held", "other", "w"]  # mul saves the sine and the cosine


@pytest.mark.parametrize("device", DEVICES)
def test_views_count_once_and_keep_their_storage(device: str) -> None:
    with Meter() as meter:
        a = torch.ones(40, 40, device=device)
        views = [a.t(), a[3:], a.view(-1), a.detach(), a.expand(2, 40, 40)]
        assert meter.current_bytes == block(1600)
        del a
        assert meter.current_bytes == block(1600)
        views.clear()
        assert meter.current_bytes == 0


def test_an_operator_that_works_in_place_adds_nothing() -> None:
    with Meter() as meter:
        a = torch.ones(1000)
        a.add_(1).mul_(2)
        torch.neg(a, out=a)
    assert meter.peak_bytes == block(1000)


def test_an_out_argument_made_before_is_start() -> None:
    a, out = torch.ones(1000), torch.empty(1000)
    with Meter() as meter:
        torch.neg(a, out=out)
    assert meter.start_bytes == meter.peak_bytes == 2 * block(1000)
    assert meter.report().peak_event is None


def test_start_counts_shared_storages_once_and_unnamed_ones_when_seen() -> None:
    w = torch.ones(1000)
    unnamed = torch.ones(3000)
    with Meter({"w": w, "tied": w.t(), "view": w[:5]}) as meter:
        assert meter.start_bytes == block(1000)
        w * 2
        unnamed * 2
    report = meter.report()
    assert report.start == block(1000) + block(3000)
    assert report.peak == report.start + block(3000)
    assert report.current == report.start


def test_freeing_what_was_there_before_lowers_the_account() -> None:
    held = [torch.ones(1000)]
    with Meter(held) as meter:
        held.clear()
        kept = torch.ones(10)
    assert meter.current_bytes == block(10) == kept.untyped_storage().nbytes() + 472
    assert meter.peak_bytes == block(1000)  # the start was the most
    assert meter.report().peak_event is None


def test_resize_by_operator_and_behind_the_dispatcher() -> None:
    with Meter() as meter:
        a = torch.ones(100)
        a.resize_(5000)
        assert meter.current_bytes == block(5000)
        a.untyped_storage().resize_(0)
        b = torch.ones(10)
        assert meter.current_bytes == block(10)
        a.untyped_storage().resize_(8000)
        b += 1
    assert meter.current_bytes == 8192 + block(10)
    assert meter.peak_bytes == block(5000)
    assert len(b) == 10


def test_a_tensor_that_changes_its_storage() -> None:
    with Meter() as meter:
        a = torch.ones(1000)
        a.set_(torch.ones(10))
        assert meter.current_bytes == block(10)
        a.data = torch.ones(3000)
        a + 0
        assert meter.current_bytes == block(3000)


def test_tensors_made_outside_the_dispatcher_are_made_not_start() -> None:
    with Meter() as meter:
        a = torch.tensor([1.0, 2.0])
        assert meter.start_bytes == 0
        assert meter.current_bytes == 512
    assert a.sum() == 3


def test_backward_is_counted_and_its_lines_are_those_of_forward() -> None:
    def loss(x: Tensor, w: Tensor) -> Tensor:
        hidden = x @ w
        return hidden.square().sum()

    x = torch.randn(8, 500)
    w = torch.randn(500, 600, requires_grad=True)
    with Meter({"x": x, "w": w}) as meter:
        value = loss(x, w)
        forward_peak = meter.peak_bytes
        value.backward()
    report = meter.report()
    backward = [event for event in report.timeline if event.site.node]
    assert report.peak > forward_peak
    assert report.peak_event is not None
    assert report.peak_event.site.node == "MmBackward0"
    assert report.line is not None
    assert report.line.line == loss.__code__.co_firstlineno + 1
    assert {event.site.node for event in backward} >= {"SumBackward0", "PowBackward0", "MmBackward0"}
    grads = [live for live in report.live if live.site and live.site.node and live.shape == (500, 600)]
    assert [live.bytes for live in grads] == [block(500, 600)]
    assert w.grad is not None


class _Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad * y


def test_a_hand_written_backward_speaks_for_itself() -> None:
    x = torch.randn(3000, requires_grad=True)
    with Meter([x]) as meter:
        _Exp.apply(x).sum().backward()
    lines = [str(event.site.line) for event in meter.report().timeline if "_ExpBackward" in event.site.node]
    code = _Exp.backward.__code__
    assert lines
    assert {int(line.rpartition(":")[2]) for line in lines} <= {code.co_firstlineno + n for n in range(1, 5)}


def test_saved_tensors_stay_alive_until_backward() -> None:
    x = torch.randn(1000, requires_grad=True)
    with Meter([x]) as meter:
        y = x.exp().sin()  # exp saves its result, sin its argument: the same storage
        del_me = meter.current_bytes
        y.sum().backward()
        del y
    assert del_me == 3 * block(1000)
    assert meter.current_bytes == 2 * block(1000)  # x and its gradient


def test_checkpoint_frees_and_recomputes() -> None:
    def body(x: Tensor) -> Tensor:
        for _ in range(6):
            x = x.sin()
        return x

    def peak(recompute: bool) -> int:
        x = torch.randn(10_000, requires_grad=True)
        with Meter([x]) as meter:
            y = checkpoint(body, x, use_reentrant=False) if recompute else body(x)
            held = meter.current_bytes
            y.sum().backward()
        return held

    assert peak(recompute=True) == 2 * block(10_000)
    assert peak(recompute=False) == 7 * block(10_000)


def test_fake_tensors_on_a_device_that_is_not_there() -> None:
    for outer_is_meter in (True, False):
        meter, fake = Meter(device="cuda"), FakeTensorMode()
        first, second = (meter, fake) if outer_is_meter else (fake, meter)
        with first, second:
            w = torch.randn(1000, 1000, device="cuda")
            y = (w @ w).relu()
        assert meter.peak_bytes == 3 * block(1000, 1000)
        assert {live.device for live in meter.report().live} == {"cuda:0"}
        del w, y


def test_a_device_filter_leaves_the_others_out() -> None:
    with Meter(device="meta") as meter:
        torch.ones(10_000)
        a = torch.ones(10, device="meta")
    assert meter.peak_bytes == 512 == block(*a.shape)


def test_nested_meters_have_their_own_accounts() -> None:
    with Meter() as outer:
        a = torch.ones(1000)
        with Meter() as inner:
            b = a + 1
        c = torch.ones(10)
    assert outer.peak_bytes == 2 * block(1000) + block(10)
    assert (inner.start_bytes, inner.peak_bytes) == (block(1000), 2 * block(1000))
    assert b.numel() + c.numel() == 1010


def test_the_same_meter_may_be_entered_twice_and_again() -> None:
    meter = Meter()
    with meter:
        with meter:
            a = torch.ones(1000)
        b = torch.ones(1000)
    with meter:
        c = torch.ones(1000)
    assert meter.peak_bytes == 3 * block(1000)
    assert len(meter.report().timeline) == 3
    assert (a + b + c).sum() == 3000


def test_one_meter_in_several_threads() -> None:
    meter = Meter()
    kept: list[Tensor] = []

    def work() -> None:
        with meter:
            for _ in range(50):
                kept.append(torch.ones(1000))
                torch.ones(3)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meter.current_bytes == 200 * block(1000)
    assert len(meter.report().timeline) == 400


def test_a_cycle_is_alive_until_the_collector_runs() -> None:
    gc.collect()
    with Meter() as meter:
        holder: dict[str, object] = {"t": torch.ones(1000)}
        holder["self"] = holder
        del holder
        assert meter.current_bytes == block(1000)
        gc.collect()
        assert meter.current_bytes == 0


def test_an_exception_in_an_operator_leaves_the_account_right() -> None:
    with Meter() as meter:
        a = torch.ones(10)
        with pytest.raises(RuntimeError):
            a @ torch.ones(11)
        del a
    assert meter.current_bytes == 0


def test_live_at_any_operator() -> None:
    with Meter({"x": torch.ones(10)}) as meter:
        a = torch.ones(1000)
        b = a + 1
        del a
        b + 1
    assert [live.bytes for live in meter.live_at(1)] == [4096, 4096]
    assert [live.owner for live in meter.live_at(BEFORE)] == ["x"]


def test_sparse_tensors_count_their_parts() -> None:
    with Meter() as meter:
        s = torch.sparse_coo_tensor(
            torch.zeros(2, 100, dtype=torch.int64), torch.ones(100), (10, 10), check_invariants=False
        )
    assert meter.current_bytes == block(200, size=8) + block(100)
    assert s.is_sparse


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["new", "free", "view"]), st.integers(0, 3000)), max_size=30))
def test_agrees_with_a_model_of_the_account(steps: list[tuple[str, int]]) -> None:
    """Any sequence of making, viewing and freeing, against a list of sizes kept by hand."""
    held: list[tuple[Tensor, int]] = []
    peak = 0
    with Meter() as meter:
        for what, n in steps:
            if what == "new" or not held:
                held.append((torch.empty(n), len(held)))
            elif what == "free":
                held.pop(n % len(held))
            else:
                tensor, owner = held[n % len(held)]
                held.append((tensor[:1], owner))
                del tensor
            sizes = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t, _ in held}
            now = sum(-(-size // 512) * 512 for size in sizes.values())
            peak = max(peak, now)
            assert meter.current_bytes == now
    assert meter.peak_bytes == peak


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_counters_are_read_beside() -> None:
    torch.empty(1, device="cuda")
    with Meter(device="cuda") as meter:
        a = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        b = torch.empty(48 << 20, dtype=torch.uint8, device="cuda")
        del a
    (cuda,) = [each for each in meter.report().cuda if each.device == b.device.index]
    assert cuda.allocated_peak - cuda.allocated_start == meter.peak_bytes == 80 << 20
