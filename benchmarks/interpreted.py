"""A pytest plugin that runs a Triton package's tests on the CPU: kernels interpreted, shapes small, each test with a limit.

    TRITON_INTERPRET=1 PYTHONPATH=benchmarks python -m pytest -p interpreted ...

Whole numbers in the parameters of tests are cut to ``CAP`` (32), offsets of packed sequences are scaled to it, autotuners
take their first configuration, and a test that takes longer than ``LIMIT`` seconds (60) fails. The figures that such a run
gives are those of other tests than the package's; what they are good for is a comparison of two versions.
"""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest
import torch
from triton.runtime import autotuner

CAP = int(os.environ.get("CAP", "32"))
LIMIT = int(os.environ.get("LIMIT", "60"))

torch.cuda.is_available = lambda: False
torch.cuda.synchronize = lambda *_, **__: None
torch.cuda.empty_cache = lambda: None
torch.cuda.get_device_capability = lambda *_, **__: (9, 0)


def on_the_cpu(name: str) -> None:
    """Tell a package that chose its device when it was imported."""
    try:
        module = importlib.import_module(name)
    except ImportError:
        return
    module.device = module.device_name = "cpu"  # type: ignore[attr-defined]
    module.device_torch_lib = torch.cpu  # type: ignore[attr-defined]


on_the_cpu("fla.utils")


def run(self: Any, *args: Any, **kwargs: Any) -> Any:
    """An autotuner that takes its first configuration: there is nothing to measure."""
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    config = self.prune_configs(kwargs)[0] if len(self.configs) > 1 else self.configs[0]
    given = {**self.nargs, **kwargs, **config.all_kwargs()}
    if config.pre_hook is not None:
        config.pre_hook(given)
    if getattr(self, "user_defined_pre_hook", False):
        self.pre_hook(given)
    result = self.fn.run(*args, **kwargs, **config.all_kwargs())
    self.nargs = None
    return result


autotuner.Autotuner.run = run


def small(value: Any) -> Any:
    """A parameter of a test, cut down."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value <= 2 else 2 if value <= 8 else min(value, CAP)
    if isinstance(value, list) and value and all(isinstance(item, int) for item in value) and value[0] == 0:
        return value if value[-1] <= CAP else sorted({round(item * CAP / value[-1]) for item in value})
    if isinstance(value, (list, tuple)):
        return type(value)(map(small, value))
    return value


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Cut down the parameters of a test before pytest reads them."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        values = mark.args[1] if len(mark.args) > 1 else mark.kwargs["argvalues"]
        for place, value in enumerate(values):
            if hasattr(value, "marks"):
                values[place] = pytest.param(*map(small, value.values), id=value.id, marks=value.marks)
            else:
                values[place] = small(value)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Stop a test that takes too long."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"over {LIMIT} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
