"""The Triton kernels: on the CPU in a process with Triton's interpreter, on CUDA as they are, and when they run."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from cachelint.runtime.layers import kernels
from tests.runtime.layers.kernel_cases import CASES, agrees, survives_reset

ROOT = Path(__file__).parents[3]
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@needs_triton
def test_kernels_under_the_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/runtime/layers/kernels_interpreted.py"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"} | {"PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@needs_triton
@needs_cuda
@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kernels_agree_on_cuda(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    agrees(CASES[name], dtype, "cuda", monkeypatch)


@needs_triton
@needs_cuda
@pytest.mark.gpu
@pytest.mark.parametrize("name", ["layer norm", "softmax", "cross entropy", "rotary"])
def test_kernels_survive_a_reset_on_cuda(name: str) -> None:
    survives_reset(CASES[name], "cuda")


# ---- when they are used


def test_by_default_a_cpu_tensor_takes_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kernels.VARIABLE, raising=False)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert not kernels.enabled(torch.ones(2))


def test_a_choice_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.VARIABLE, "yes")
    with pytest.raises(ValueError, match="CACHELINT_KERNELS must be auto, on or off, not 'yes'"):
        kernels.enabled(torch.ones(2))
    with kernels.use("off"):
        assert not kernels.enabled(torch.ones(2))


def test_kernels_asked_for_and_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.VARIABLE, "on")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(kernels, "_has_triton", lambda: True)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1 is not set"):
        kernels.enabled(torch.ones(2))
    monkeypatch.setattr(kernels, "_has_triton", lambda: False)
    with pytest.raises(RuntimeError, match="triton is not installed"):
        kernels.enabled(torch.ones(2))


def test_a_layer_imports_no_triton_on_the_plain_path() -> None:
    code = (
        "import sys; from cachelint.runtime.layers.normalization.rms_norm import example; node, (x,) = example();"
        "node.backward(node.forward(x), x); sys.exit('cachelint.runtime.layers.kernels.rms_norm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
