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


def inputs_of(optional: bool, needed: str = "xwb") -> list[Any]:
    """The same inputs each time; those in ``needed`` require a gradient."""
    torch.manual_seed(3)
    x = torch.randn(3, 3, dtype=torch.float64).requires_grad_("x" in needed)
    w = torch.randn(3, 3, dtype=torch.float64).requires_grad_("w" in needed)
    b = torch.randn(3, 3, dtype=torch.float64).requires_grad_("b" in needed) if optional else None
    return [x, w, b, 1.5]


CALLS = ((True, True, "xwb"), (False, False, "xw"), (True, False, "x"), (False, True, "wb"))
"""``flag``, whether ``b`` is given, and what requires a gradient."""


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
    for call in CALLS:
        where = "(flag={}, b={}, gradients of {})".format(*call)
        for name in [name for name in ("Fn", "Other") if hasattr(old, name)]:
            try:
                before, wanted = first(getattr(old, name).apply, *call)
            except AttributeError:
                continue  # the program as it was is wrong on this path: a field is unset there
            output, got = first(getattr(new, name).apply, *call)
            if len(before) != len(output) or not all(map(same, before, output)):
                return f"the output differs {where}"
            if not all(map(close, wanted, first(truth.reference, *call)[1])):
                return f"the generator is wrong: the first derivative {where}"
            if not all(map(same, wanted, got)):
                return f"the gradient differs {where}"
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
                output, got = first(getattr(new, name).apply, *call)
            if not all(map(same, (*before, *wanted), (*output, *got))):
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


Tensors = tuple[Tensor | None, ...]


def first(call: Any, flag: bool, optional: bool, needed: str) -> tuple[Tensors, Tensors]:
    """The outputs and the gradients of one call."""
    arguments = inputs_of(optional, needed)
    torch.manual_seed(11)
    result = call(*arguments, flag)
    outputs, weights = _weighted(result)
    leaves = [a for a in arguments if isinstance(a, Tensor) and a.requires_grad]
    grads = torch.autograd.grad(outputs, leaves, weights, allow_unused=True) if outputs else (None,) * len(leaves)
    return tuple(output.detach() for output in _every(result)), grads


def second(call: Any) -> Tensors | None:
    """The derivatives of a weighted sum of the gradients, None where backward can't run again."""
    arguments = inputs_of(True)
    torch.manual_seed(11)
    outputs, weights = _weighted(call(*arguments, True))
    leaves = [a for a in arguments if isinstance(a, Tensor)]
    weights = [weight.requires_grad_() for weight in weights]
    try:
        grads = torch.autograd.grad(outputs, leaves, weights, create_graph=True, allow_unused=True)
        used = [g for g in grads if g is not None and g.requires_grad]
        if not used:
            return (None,) * (len(leaves) + len(weights))
        mixed = sum((g * torch.linspace(1.0, 2.0, 9, dtype=torch.float64).reshape(3, 3)).sum() for g in used)
        return torch.autograd.grad(mixed, [*leaves, *weights], allow_unused=True)
    except (AttributeError, TypeError, RuntimeError):
        return None


def _every(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def _weighted(result: Any) -> tuple[list[Tensor], list[Tensor]]:
    """The outputs that have a gradient, and the gradient that each is given."""
    own = torch.linspace(0.5, 1.5, 9, dtype=torch.float64).reshape(3, 3)
    pairs = [(output, own + k) for k, output in enumerate(_every(result)) if output.requires_grad]
    return [output for output, _ in pairs], [weight for _, weight in pairs]


def poison_clean(after: str) -> str:
    """What backward still reads without the contract, by running it under poison."""
    from cachelint.runtime.poison import prove

    module = module_of(after)

    def run(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return module.Fn.apply(x, w, b, 1.5, True)  # type: ignore[no-any-return]

    x, w, b, _ = inputs_of(True)
    proof = prove(run, x, w, b, autograd=True)
    return "" if proof.ok else "; ".join(map(str, proof.hazards))
