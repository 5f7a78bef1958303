"""What the outcome of a test shows: of the argument of a helper, and of an attribute of an object."""

from __future__ import annotations

import pytest

from tests.infer.judging import function, judged

HELPER = """
def moved(value, device):
    if {test}:
        return value.to(device).detach()
    return 3
"""

RECORD = """
from dataclasses import dataclass

class Shape:
    def __init__(self, size):
        self.size = size
        self.table = torch.arange(size)

@dataclass
class Inputs:
    x: Tensor
    bias: Tensor | Shape | None = None

def change(inputs):
    inputs.bias = None

def choose(x):
    if x.sum() > 0:
        return Shape(3)
    return x * 2
"""


@pytest.mark.parametrize("test", ["torch.is_tensor(value)", "isinstance(value, torch.Tensor)"])
def test_a_helper_that_is_given_a_tensor_takes_the_way_for_tensors(test: str) -> None:
    body = "if torch.is_tensor(x):\n    ctx.kept = moved(x, 'cpu')\nreturn x"
    found = judged(function(body, "kept", "x", HELPER.format(test=test)))
    assert (found["kept"].storage, found["kept"].cls) == ("device", "RECOMPUTE")


def test_a_helper_that_is_given_something_else_may_take_any_way() -> None:
    body = "ctx.kept = moved(x, 'cpu')\nreturn x"
    found = judged(function(body, "kept", "x: 'Tensor | int'", HELPER.format(test="torch.is_tensor(value)")))
    assert found["kept"].storage != "device"


def test_a_test_of_an_attribute_shows_its_kind_in_both_branches() -> None:
    body = """
    inputs = Inputs(x, choose(x))
    if isinstance(inputs.bias, torch.Tensor):
        ctx.tensor, ctx.other = inputs.bias, None
    else:
        ctx.tensor, ctx.other = None, inputs.bias
    return inputs.x
    """
    found = judged(function(body, "tensor other", "x: Tensor", RECORD))
    assert "elementwise arithmetic" in {link.text for link in found["tensor"].evidence}
    assert {link.text for link in found["other"].evidence} == {"arange: a constant tensor"}


@pytest.mark.parametrize(
    "between",
    ["change(inputs)", "inputs = Inputs(x, more)", "inputs.bias = more", "setattr(inputs, 'bias', more)"],
)
def test_what_a_test_showed_is_forgotten_when_the_object_may_be_another(between: str) -> None:
    body = f"""
    inputs = Inputs(x, bias)
    if isinstance(inputs.bias, torch.Tensor):
        {between}
        ctx.tensor = inputs.bias
    return inputs.x
    """
    before = judged(
        function(body.replace(between, "pass"), "tensor", "x: Tensor, bias: 'Tensor | Shape | None', more: int", RECORD)
    )
    after = judged(function(body, "tensor", "x: Tensor, bias: 'Tensor | Shape | None', more: int", RECORD))
    assert before["tensor"].storage == "device"
    assert after["tensor"].storage != "device"


def test_what_a_test_showed_ends_with_its_branch() -> None:
    body = """
    inputs = Inputs(x, bias)
    if isinstance(inputs.bias, torch.Tensor):
        pass
    ctx.bias = inputs.bias
    return inputs.x
    """
    assert (
        judged(function(body, "bias", "x: Tensor, bias: 'Tensor | Shape | None'", RECORD))["bias"].storage != "device"
    )


@pytest.mark.parametrize(("given", "kept"), [("tensors[1:]", {"kept"}), ("None", {"other"})])
def test_a_helper_that_is_given_a_sure_container_does_not_make_its_own(given: str, kept: set[str]) -> None:
    module = """
    def keep(ctx, x, tensors=None):
        if tensors is None:
            ctx.other = x * 2
        else:
            ctx.kept = x * 2
    """
    body = f"tensors = (x, x + 1)\nkeep(ctx, x, {given})\nreturn x"
    assert judged(function(body, "kept other", "x: Tensor", module)).keys() & {"kept", "other"} == kept
