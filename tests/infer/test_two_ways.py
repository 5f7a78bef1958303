"""Two ways to one value: a fast one that can't be seen, and a plain one."""

from __future__ import annotations

import pytest

from tests.infer.judging import classes, function


def of(forward: str, reads: str, signature: str = "x", module: str = "") -> dict[str, str]:
    return classes(function(forward, reads, signature, module, "grad"))


@pytest.mark.parametrize(
    "fast",
    ["mean, rstd = ext.stats(x)", "mean = ext.mean(x)\n    rstd = ext.rstd(x)"],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_plain_way_beside_a_fast_one_gives_the_value_again(fast: str, swapped: bool) -> None:
    plain = "mean = x.mean(-1)\n    rstd = torch.rsqrt(x.var(-1) + 1e-5)"
    first, second = (plain, fast) if swapped else (fast, plain)
    body = f"if x.is_cuda:\n    {first}\nelse:\n    {second}\nctx.mean = mean\nctx.rstd = rstd\nreturn x"
    assert of(body, "mean rstd", "x: Tensor", "import ext") == {"mean": "RECOMPUTE", "rstd": "RECOMPUTE"}


@pytest.mark.parametrize("other", ["torch.softmax(x, -1)", "x @ x", "torch.randn_like(x)", "x", "ext.more(x)"])
def test_no_other_pair_of_ways_does(other: str) -> None:
    body = f"if x.is_cuda:\n    h = ext.kernel(x)\nelse:\n    h = {other}\nctx.h = h\nreturn x * 2"
    assert of(body, "h", "x: Tensor", "import ext") == {"h": "SAVE"}
