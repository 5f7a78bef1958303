"""Run a program before and after its fix, and compare everything that section 7 of the promises names."""

from __future__ import annotations

import os
import types
from typing import Any

import torch
from torch import Tensor

from cachelint.fix.apply import Fixed, fix_text
from cachelint.index.project import Project
from cachelint.settings import Settings
from cachelint.source import Source, decode
from tests.fix.programs import INPUTS, Program

HERE = os.path.abspath("program.py")


def source_of(text: str, path: str = HERE) -> Source:
    """A text as if it were a file."""
    return decode(text.encode(), os.path.basename(path), path)


def fixed(text: str, *, unsafe: bool = False, codes: str = "CL1", path: str = HERE) -> Fixed:
    """The outcome of fixing a text that stands alone."""
    source = source_of(text, path)
    project = Project(os.path.dirname(path), [path], lambda p: text if p == path else None)
    settings = Settings(select=("ALL",))
    return fix_text(source, project, settings, wanted=lambda f: f.code.startswith(codes), unsafe=unsafe)


def module_of(text: str, name: str = "program") -> types.ModuleType:
    """Execute a text as a module."""
    module = types.ModuleType(name)
    exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    return module


def inputs_of(optional: bool) -> list[Any]:
    """The same inputs each time."""
    torch.manual_seed(3)
    x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    b = torch.randn(3, 3, dtype=torch.float64, requires_grad=True) if optional else None
    return [x, w, b, 1.5]


def same(a: Tensor | None, b: Tensor | None) -> bool:
    """Bitwise equal, NaN included."""
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)


def close(a: Tensor | None, b: Tensor | None) -> bool:
    """Equal but for rounding; a gradient that is not there is zero."""
    if a is None and b is None:
        return True
    shape = (a if a is not None else b).shape  # type: ignore[union-attr]
    zero = torch.zeros(shape, dtype=torch.float64)
    return torch.allclose(zero if a is None else a, zero if b is None else b, rtol=1e-9, atol=1e-9)


def compare(program: Program, after: str) -> str:
    """What is wrong with a fix; an empty string when nothing is."""
    old, new = module_of(program.text), module_of(after)
    truth = module_of("import torch\n" + program.reference)
    for flag, optional in ((True, True), (False, False)):
        where = f"(flag={flag}, b={optional})"
        before = first(old.Fn.apply, flag, optional)
        got = first(new.Fn.apply, flag, optional)
        if not same(before[0], got[0]):
            return f"the output differs {where}"
        if not all(map(close, before[1:], first(truth.reference, flag, optional)[1:])):
            return f"the generator is wrong: the first derivative {where}"
        if not all(map(same, before[1:], got[1:])):
            return f"the gradient differs {where}"
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
            hooked = first(new.Fn.apply, flag, optional)
        if not all(map(same, before, hooked)):
            return f"the gradient differs under saved-tensor hooks {where}"
    count = len(program.terms)
    for number in range(count):
        coefficients = [float(number == k) for k in range(count)]
        for module in (old, new, truth):
            module.COEF[:] = coefficients
        was, now = second(old.Fn.apply), second(new.Fn.apply)
        right = second(truth.reference)
        assert right is not None
        if now is None and was is not None:
            return f"the second derivative raises (term {number})"
        if was is None or now is None:
            continue
        if all(map(close, was, right)) and not all(map(close, now, right)):
            return f"the second derivative was right and is wrong (term {number})"
        partly = len(set(program.terms[number].keeps) - set(INPUTS)) > 1  # one derived again, the other saved
        if partly or "set twice" in program.habits:  # a view of an input or output cuts the graph
            continue
        if not all(map(close, now, right)) and not all(map(close, now, was)):
            return f"the second derivative is neither the old one nor right (term {number})"
    return ""


def first(call: Any, flag: bool, optional: bool) -> tuple[Tensor | None, ...]:
    """The output and the gradients of one call."""
    arguments = inputs_of(optional)
    torch.manual_seed(11)
    output = call(*arguments, flag)
    leaves = [a for a in arguments if isinstance(a, Tensor)]
    weight = torch.linspace(0.5, 1.5, 9, dtype=torch.float64).reshape(3, 3)
    return (output.detach(), *torch.autograd.grad(output, leaves, weight, allow_unused=True))


def second(call: Any) -> tuple[Tensor | None, ...] | None:
    """The derivatives of a weighted sum of the gradients, None where backward can't run again."""
    arguments = inputs_of(True)
    torch.manual_seed(11)
    output = call(*arguments, True)
    leaves = [a for a in arguments if isinstance(a, Tensor)]
    weight = torch.linspace(0.5, 1.5, 9, dtype=torch.float64).reshape(3, 3).requires_grad_()
    try:
        grads = torch.autograd.grad(output, leaves, weight, create_graph=True, allow_unused=True)
        used = [g for g in grads if g is not None and g.requires_grad]
        if not used:
            return (None,) * 4
        mixed = sum((g * torch.linspace(1.0, 2.0, 9, dtype=torch.float64).reshape(3, 3)).sum() for g in used)
        return torch.autograd.grad(mixed, [*leaves, weight], allow_unused=True)
    except (AttributeError, TypeError, RuntimeError):
        return None


def poison_clean(after: str) -> str:
    """What backward still reads without the contract, by running it under poison."""
    from cachelint.runtime.poison import prove

    module = module_of(after)

    def run(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return module.Fn.apply(x, w, b, 1.5, True)  # type: ignore[no-any-return]

    x, w, b, _ = inputs_of(True)
    proof = prove(run, x, w, b, autograd=True)
    return "" if proof.ok else "; ".join(map(str, proof.hazards))
