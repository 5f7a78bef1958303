"""Arrays that a function of numpy, or a method of an array, is given by their place to write its result into."""

from __future__ import annotations

import pytest

from tests.fix.differential import fixed, module_of
from tests.fix.test_nodes import array, install
from tests.fix.test_nodes_differential import outcome

np = pytest.importorskip("numpy")

SOURCE = """\
import numpy
from chainer import backend, function_node


def grow(v):
    numpy.add(v, 1, v)


def power(xp, v):
    return xp.exp(v, v)


class Fn(function_node.FunctionNode):
    def __init__(self, p, q):
        self.p = p

    def forward(self, inputs):
        x, t = inputs
        self.retain_inputs((0, 1))
        xp = backend.get_array_module(x)
        a = x * 1
        {line}
        self.f = a
        return a * t,

    def backward(self, indexes, grad_outputs):
        x, t = self.get_retained_inputs()
        gy = grad_outputs[0].array
        return gy * self.f, gy * 2
"""
WRITES = [
    "b = numpy.exp(a, a)",
    "numpy.add(a, t, a)",
    "b = xp.maximum(a, t, a)",
    "xp.exp(a[0], a[1])",
    "b = a.clip(0, 1, a)",
    "b = xp.clip(a, 0, 1, a)",
    "b = a.cumsum(0, None, a)",
    "b = x.sum(0, None, a[0])",
    "b = x.max(0, a[0])",
    "b = numpy.round(a, 1, a)",
    "grow(a)",
    "b = power(xp, a)",
]
ONLY_READS = [
    "b = numpy.exp(a)",
    "b = numpy.add(a, t)",
    "b = xp.maximum(a, t)",
    "b = a.clip(0, 1)",
    "b = xp.where(a > 0, a, t)",
    "b = a.sum(0)",
    "b = max(1, 2, 3)",
]


@pytest.mark.parametrize("line", WRITES)
def test_what_is_written_by_place_is_not_made_again(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    text = SOURCE.format(line=line)
    node = module_of(text).Fn(False, False)
    node.run((array(0), array(1)), "cpu")
    assert node.f.tobytes() != array(0).tobytes()
    done = fixed(text)
    assert done.text == text
    assert done.refused


@pytest.mark.parametrize("line", ONLY_READS)
def test_what_is_only_read_is(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    text = SOURCE.format(line=line)
    done = fixed(text)
    assert done.applied
    was, now = (outcome(module_of(code), False, False, 1) for code in (text, done.text))
    assert was is not None
    assert now is not None
    assert [a.tobytes() for a in was] == [b.tobytes() for b in now]
