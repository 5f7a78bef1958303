"""CL213: backward returns a number of gradients that does not fit the inputs of apply."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import entry_of, home_made
from cachelint.collect.log import Returned
from cachelint.index.walk import last_name, walk
from cachelint.infer.analysis import Analysis
from cachelint.infer.values import CHILD, COLLECTIVE, DEVICE, NONE, OPAQUE, Seq, carried
from cachelint.model import Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Returns of backward that are too short, or too long by something that is not None."""
    analysis = context.analysis
    unit = analysis.unit
    if unit.dialect.name not in ("torch-function", "torch-library", "paddle") or not unit.backward:
        return
    inputs = _inputs(analysis)
    if inputs is None or home_made(analysis):
        return
    found = list(_mismatches(context, rule, *inputs))
    if found and not _never_runs(analysis):
        yield from found


def _mismatches(context: TypeContext, rule: Rule, least: int, most: int) -> Iterator[Finding]:
    analysis = context.analysis
    unit = analysis.unit
    seen: set[int] = set()
    for event in analysis.log.returns:
        if event.phase != "backward" or event.file != unit.module.path or id(event.node) in seen:
            continue
        if entry_of(event, "backward", analysis.log) not in ("backward", "vjp", unit.backward[0].node.name):
            continue
        number, surplus = _gradients(event, most)
        if number is None:
            continue
        seen.add(id(event.node))
        given = "1 gradient" if number == 1 else f"{number} gradients"
        wants = f"{most} inputs" if most != 1 else "1 input"
        if surplus:
            yield context.at(
                rule, event.node, f"backward returns {given}, forward has {wants}, and the surplus is not None"
            )
        elif number < least or (number < most and unit.info is not None and _passed_more(context, number)):
            if unit.dialect.name != "paddle":
                yield context.at(
                    rule, event.node, f"backward returns {given}, but forward has {wants}: an error in backward"
                )


def _never_runs(analysis: Analysis) -> bool:
    """Whether nothing that forward returns can be differentiated: all of it is marked, or holds integers."""
    marked: set[str] = set()
    for name, _, values, *_ in analysis.log.api_calls:
        if name == "mark_non_differentiable":
            marked.update(root for value in values for root in carried(value).roots)
    returned = [r for r in analysis.log.returns if r.phase == "forward"]
    outputs = [carried(r.value).roots for r in returned]
    if marked and outputs and all(roots and roots <= marked for roots in outputs):
        return True
    forward = analysis.unit.forward[0].node
    whole = [n.value for n in walk(forward) if isinstance(n, ast.Return)]
    parts = [p for v in whole for p in (v.elts if isinstance(v, ast.Tuple) else [v])]
    bound: dict[str, list[ast.expr]] = {}
    for node in walk(forward):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    bound.setdefault(target.id, []).append(node.value)
    return bool(parts) and all(_integral(part, bound, 4) for part in parts)


def _integral(node: ast.expr | None, bound: dict[str, list[ast.expr]], depth: int) -> bool:
    """Whether an expression surely gives integers or truth values."""
    if isinstance(node, ast.Name) and depth:
        return node.id in bound and all(_integral(value, bound, depth - 1) for value in bound[node.id])
    if isinstance(node, ast.Compare):
        return True
    if not isinstance(node, ast.Call):
        return False
    if any(keyword.arg == "dtype" and last_name(keyword.value) in _INTEGERS for keyword in node.keywords):
        return True
    if last_name(node.func) in _MAKE_INTEGERS:
        return True
    return (
        isinstance(node.func, ast.Attribute)
        and last_name(node.func) in _KEEP
        and _integral(node.func.value, bound, depth)
    )


_INTEGERS = frozenset("bool uint8 int8 int16 int32 int64 short int long".split())
_MAKE_INTEGERS = frozenset(
    "IntTensor LongTensor ByteTensor BoolTensor ShortTensor int long bool argmax argmin argsort nonzero searchsorted"
    " bincount randperm bucketize".split()
)
_KEEP = frozenset(
    "contiguous zero_ fill_ view reshape clone detach transpose permute squeeze unsqueeze t cuda cpu".split()
)


def _inputs(analysis: Analysis) -> tuple[int, int] | None:
    """How many inputs forward takes at least and at most, None where that is open."""
    unit = analysis.unit
    if unit.dialect.name == "torch-library":
        if unit.operator is None:
            return None
        node, skip = unit.operator.node, 0
    else:
        node = unit.forward[0].node
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
        skip = (
            1 if any(last_name(d) == "classmethod" for d in node.decorator_list) or names[:2] == ["cls", "ctx"] else 0
        )
        if not unit.setup or names[skip : skip + 1] in (["ctx"], ["self"], ["context"], ["_ctx"]):
            skip += 1
    if node.args.vararg is not None or (node.args.kwonlyargs and unit.dialect.name != "torch-library"):
        return None
    if any(last_name(d.func if isinstance(d, ast.Call) else d) not in _KNOWN for d in node.decorator_list):
        return None
    most = len(node.args.posonlyargs) + len(node.args.args) - skip
    return (most - len(node.args.defaults), most) if most >= 0 else None


_KNOWN = frozenset(
    "staticmethod classmethod custom_fwd custom_op no_grad custom_setup_context jit_fuser triton_op wraps once_differentiable"
    " input_guard disable ensure_contiguous autocast_custom_fwd contiguous nvtx_wrap".split()
)


def _gradients(event: Returned, most: int) -> tuple[int | None, bool]:
    """How many values a return has, and whether one past the inputs is certainly a gradient."""
    expr, value = event.node.value, event.value
    if isinstance(value.ref, Seq) and value.ref.keys is None:
        if value.kinds & (DEVICE | NONE) or value.ref.items is None or value.ref.rest is not None:
            return None, False
        extra = value.ref.items[most:]
        if extra and any(not item.kinds & NONE and item.kinds & DEVICE for item in extra):
            return len(value.ref.items), True
        return (None if extra else len(value.ref.items)), False
    if (
        value.ref is not None
        or value.kinds != DEVICE
        or value.cost in (OPAQUE, CHILD, COLLECTIVE)
        or "multi" in value.tags
    ):
        return None, False
    if isinstance(expr, (ast.BinOp, ast.UnaryOp)) or _plain_tensor(expr):
        return 1, most == 0
    return None, False


def _plain_tensor(expr: ast.expr | None) -> bool:
    """Whether an expression gives one tensor by its form: an operator's result, by a method that returns one."""
    while isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute):
        if expr.func.attr not in _ONE:
            return False
        expr = expr.func.value
        if isinstance(expr, (ast.BinOp, ast.Name)):
            return True
    return False


_ONE = frozenset(
    "view reshape contiguous clone neg mul add sub div expand expand_as unsqueeze squeeze t transpose permute to type"
    " masked_fill masked_fill_ mul_ add_ sub_ div_ sum sign view_as float half flatten".split()
)


def _passed_more(context: TypeContext, number: int) -> bool:
    """Whether a call of ``apply`` in the project passes more arguments than that."""
    info = context.analysis.unit.info
    assert info is not None
    for path in context.project.apply_files(info.name):
        module = context.project.module(path)
        if module is None:
            continue
        for chunk in module.chunks:
            if f"{info.name}.apply" not in chunk.text:
                continue
            for statement in module.statements(chunk):
                for node in walk(statement):
                    if (
                        isinstance(node, ast.Call)
                        and isinstance(node.func, ast.Attribute)
                        and node.func.attr == "apply"
                        and last_name(node.func.value) == info.name
                        and not any(isinstance(a, ast.Starred) for a in node.args)
                        and len(node.args) > number
                    ):
                        return True
    return False
