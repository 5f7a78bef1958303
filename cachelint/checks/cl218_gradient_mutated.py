"""CL218: backward modifies the gradient that it was handed, in place."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import edited, entry_of
from cachelint.collect.log import Mutation
from cachelint.index.walk import last_name
from cachelint.infer.analysis import Analysis
from cachelint.infer.kernels import written_parameters
from cachelint.infer.optable import operators
from cachelint.infer.values import Value
from cachelint.model import Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """In-place writes, and kernels that store, to the storage of an incoming gradient."""
    analysis = context.analysis
    log, unit = analysis.log, analysis.unit
    seen: set[int] = set()
    entries = {method.node.name for method in unit.backward}
    places: set[tuple[str, str]] = set()  # the first edit of a gradient stands for those that follow it
    for mutation in log.mutations:
        if mutation.phase != "backward" or not _incoming(mutation.value) or mutation.file != unit.module.path:
            continue
        if entry_of(mutation, "backward", log) == "jvp":
            continue  # a tangent: where forward works in place, jvp has to
        if f"torch.distributed.{mutation.how}" in operators().fills or (
            len(mutation.value.roots) > 1 and mutation.path
        ):
            continue  # reduced over a group by convention; and of several tensors it may be another one
        if mutation.how == "augmented assignment" and (unit.dialect.name == "chainer" or _own_variables(analysis)):
            continue  # a Variable is bound anew by it
        place = (mutation.function, _written(mutation) if mutation.function in entries else "")
        if id(mutation.node) not in seen and place not in places:
            seen.add(id(mutation.node))
            places.add(place)
            name = f"`{mutation.name}`" if mutation.name.isidentifier() else "the incoming gradient"
            yield context.at(rule, mutation.node, _message(name, mutation.how, context))
    for launch in log.launches:
        if launch.phase != "backward" or launch.file != unit.module.path or id(launch.node) in seen:
            continue
        if entry_of(launch, "backward", log) == "jvp":
            continue
        hit = [name for name, value in launch.values if _incoming(value) and (len(value.roots) == 1 or not launch.path)]
        if hit:
            written = written_parameters(launch.func, hit)
            for name in hit:
                if name in written:
                    seen.add(id(launch.node))
                    kernel = getattr(launch.func.node, "name", "?")
                    yield context.at(
                        rule,
                        launch.node,
                        _message("the incoming gradient", f"the kernel {kernel}, through {name}", context),
                    )
                    break


def _written(mutation: Mutation) -> str:
    """The name at the root of what an edit writes to."""
    text = edited(mutation.node)
    found = _NAME.match(text)
    return found[0] if found is not None else text


_NAME = re.compile(r"[A-Za-z_]\w*")


def _own_variables(analysis: Analysis) -> bool:
    """Whether the project's own engine hands out gradients of its own class, and the class has no operators in place."""
    info = analysis.unit.info
    owners = analysis.machine.mro(info) if info is not None else []
    if not owners or any(last_name(base) != "object" for base in owners[-1].node.bases):
        return False
    for chunk in owners[-1].module.chunks:
        if chunk.kind != "class" or "def backward(" not in chunk.text:
            continue
        # ``x.grad.data`` is what an engine hands out whose functions work on arrays.
        if f"self.grad = {chunk.name}(" in chunk.text and ".grad.data" not in chunk.text:
            return not _IN_PLACE.search(owners[-1].module.text)
    return False


_IN_PLACE = re.compile(r"\b__i(?:add|sub|mul|truediv)__\b")


def _incoming(value: Value) -> bool:
    return "grad" in value.roots and value.ref is None and ("copy?" not in value.tags or _only_laid_out(value))


def _only_laid_out(value: Value) -> bool:
    """Whether all that may have copied it is a call like `contiguous`, which gives back the same tensor as a rule."""
    links = value.why.chain(_LINKS) if value.why is not None else []
    steps = [link.text.partition(":")[0] for link in links if "or a copy of it" in link.text]
    return bool(steps) and len(links) < _LINKS and all(step.rpartition(".")[2] in _LAYOUT for step in steps)


_LINKS = 8
_LAYOUT = frozenset(
    "contiguous reshape flatten view view_as reshape_as t transpose permute squeeze unsqueeze detach".split()
)


def _message(name: str, how: str, context: TypeContext) -> str:
    owner = "caller, who" if context.analysis.unit.receiver_is_self else "engine, which"
    return (
        f"{name} is changed in place ({how}), but the gradient belongs to the {owner} may hand the same tensor to others. "
        "Work out of place, or clone first"
    )
