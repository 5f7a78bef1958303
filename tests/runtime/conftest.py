"""The devices that tests of the runtime run on: the CPU, and CUDA where there is one (``pytest -m gpu``)."""

from __future__ import annotations

import pytest
import torch

CUDA = pytest.param(
    "cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")],
)


@pytest.fixture(params=["cpu", CUDA])
def device(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
