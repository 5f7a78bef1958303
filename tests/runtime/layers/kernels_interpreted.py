"""The Triton kernels on the CPU, through Triton's interpreter. Run by test_kernels.py in a process of its own.

    TRITON_INTERPRET=1 pytest tests/runtime/layers/kernels_interpreted.py

The variable must be set before triton is imported, by whatever imports it.
"""

from __future__ import annotations

import pytest
import torch

from cachelint.runtime.layers import kernels
from tests.runtime.layers.kernel_cases import CASES, TOLERANCES, agrees, survives_reset


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_kernels_agree_with_the_plain_path(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    if "many rows" in name and dtype is not torch.float32:
        pytest.skip("one dtype is enough: what it shows is how programs share rows")
    agrees(CASES[name], dtype, "cpu", monkeypatch)


@pytest.mark.parametrize("name", ["layer norm", "softmax", "cross entropy", "rotary"])
def test_kernels_survive_a_reset_with_poison(name: str) -> None:
    survives_reset(CASES[name], "cpu")


def test_the_policy_with_an_interpreter() -> None:
    x = torch.ones(2, 3)
    assert not kernels.enabled(x)
    with kernels.use("on"):
        assert kernels.enabled(x, None)
        assert not kernels.enabled(x, row=kernels.MAX_ROW + 1)
        assert not kernels.enabled(torch.ones(0))
        assert not kernels.enabled(torch.ones(2, dtype=torch.int64))
        assert not kernels.enabled(torch.nn.Parameter(x))
        assert not kernels.enabled(x.to("meta"))
        leaf = x.clone().requires_grad_()
        assert not kernels.enabled(leaf)
        with torch.no_grad():
            assert kernels.enabled(leaf)
