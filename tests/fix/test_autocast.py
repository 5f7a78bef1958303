"""A value that backward derives again must come out in forward's dtype, whatever mode each of the two runs in."""

from __future__ import annotations

import pytest
import torch

from cachelint.fix.functions.autocast import chooses
from tests.fix.differential import fixed, module_of

SOURCE = """\
import torch
from torch.amp import custom_bwd, custom_fwd
{mention}

class Fn(torch.autograd.Function):
    @staticmethod
    {forward}
    def forward(ctx, x, scale):
        {make}
        ctx.kept = kept
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * kept * scale

    @staticmethod
    {backward}
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.kept * ctx.scale * x.sign(), None
"""
CHOOSES = "kept = x.prod(-1, keepdim=True)"
STEADY = "kept = x.abs().mean(-1, keepdim=True)"
FWD, BWD = '@custom_fwd(device_type="cpu")', '@custom_bwd(device_type="cpu")'
CAST = '@custom_fwd(device_type="cpu", cast_inputs=torch.float32)'
ON = '@torch.autocast("cpu", dtype=torch.bfloat16)'
OFF = '@torch.autocast("cpu", enabled=False)'
CASES = {
    "forward alone": (FWD, "", CHOOSES, False),
    "both": (FWD, BWD, CHOOSES, True),
    "inputs cast by forward alone": (CAST, "", CHOOSES, False),
    "inputs cast by both": (CAST, BWD, CHOOSES, True),
    "region around forward alone": (ON, "", CHOOSES, False),
    "the same region around both": (ON, ON, CHOOSES, True),
    "different regions": (OFF, ON, CHOOSES, False),
    "backward alone": ("", OFF, CHOOSES, False),
    "neither": ("", "", CHOOSES, False),
    "forward alone, no choice": (FWD, "", STEADY, True),
    "neither, no choice": ("", "", STEADY, True),
}


def text_of(forward: str, backward: str, make: str, mention: str = "") -> str:
    text = SOURCE.format(forward=forward, backward=backward, make=make, mention=mention)
    return "\n".join(line for line in text.split("\n") if line != "    ")


def gradients(text: str) -> list[torch.Tensor]:
    call = module_of(text).Fn.apply
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        for mode in (True, False):
            torch.manual_seed(0)
            x = torch.rand(4, 5).add(0.5).to(dtype).requires_grad_()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mode):
                y = call(x, 1.5)
            found += [y.detach(), *torch.autograd.grad(y, x, torch.ones_like(y))]
    return found


@pytest.mark.parametrize(("forward", "backward", "make", "again"), CASES.values(), ids=CASES)
def test_gradients_under_autocast_stay_bitwise_equal(forward: str, backward: str, make: str, again: bool) -> None:
    text = text_of(forward, backward, make)
    outcome = fixed(text)
    assert outcome.refused == ()
    assert outcome.text != text
    assert ("kept = x." in outcome.text.partition("def backward")[2]) is again
    for before, after in zip(gradients(text), gradients(outcome.text), strict=True):
        assert before.dtype == after.dtype
        assert torch.equal(before, after)


def test_the_cases_tell_right_from_wrong() -> None:
    """Derived again without a thought, the value would differ."""
    text = text_of(FWD, "", CHOOSES)
    careless = text.replace("ctx.kept * ctx.scale", "x.prod(-1, keepdim=True) * ctx.scale")
    assert any(not torch.equal(a, b) for a, b in zip(gradients(text), gradients(careless), strict=True))


@pytest.mark.parametrize(
    "make",
    ["kept = torch.square(x)", "kept = x ** 2", "kept = 1.0 / x", "kept = torch.exp(x)", "kept = x.sum(-1, True)"],
)
def test_operators_whose_dtype_autocast_chooses_are_saved(make: str) -> None:
    assert "ctx.save_for_backward(x, kept)" in fixed(text_of(FWD, "", make)).text
    assert "ctx.save_for_backward(x)" in fixed(text_of(FWD, BWD, make)).text


def test_who_knows_nothing_of_autocast_may_be_applied_under_it() -> None:
    """PyTorch runs backward outside the region that forward was called in."""
    text = text_of("", "", CHOOSES).replace("from torch.amp import custom_bwd, custom_fwd\n", "")
    outcome = fixed(text)
    assert "ctx.save_for_backward(x, kept)" in outcome.text
    for before, after in zip(gradients(text), gradients(outcome.text), strict=True):
        assert before.dtype == after.dtype
        assert torch.equal(before, after)


LAYER = """\
import torch

from cachelint.runtime import Node


class Layer(Node):
    {forward}
    def forward(self, x):
        self.kept = x.prod(-1, keepdim=True)
        return x * self.kept

    {backward}
    def backward(self, grad, x):
        return (grad * self.kept,)
"""


@pytest.mark.parametrize(("forward", "backward", "again"), [(ON, "", False), (ON, ON, True), ("", OFF, False)])
def test_a_layer_registers_what_it_cannot_derive_in_the_same_mode(forward: str, backward: str, again: bool) -> None:
    outcome = fixed(LAYER.format(forward=forward, backward=backward))
    assert outcome.refused == ()
    assert ("self.save_for_backward(" in outcome.text) is not again


@pytest.mark.parametrize(
    "name", "logsumexp linalg_vector_norm l1_loss mse_loss kl_div smooth_l1_loss huber_loss pow exp atan2 acos".split()
)
def test_what_pytorch_casts_is_in_the_list(name: str) -> None:
    overload = {"pow": "pow.Tensor_Scalar"}.get(name, name)
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{overload}", "AutocastCUDA")
    assert chooses(name.removeprefix("linalg_"))


@pytest.mark.parametrize("name", "square arccos arcsin arctan2".split())
def test_what_pytorch_makes_of_those_is_in_the_list_too(name: str) -> None:
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CompositeImplicitAutograd")
    assert chooses(name)
