"""What can be done with each flagged field, before any code is written: the reasons to leave it alone come from here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cachelint.fix.functions.flow import Flow
from cachelint.fix.functions.scope import BACKWARD, JVP, Routine, Scope, Use
from cachelint.index.walk import code_of, walk
from cachelint.infer.optable import operators
from cachelint.infer.values import DEVICE, HIGH, HOST, LOW, NONE, UNKNOWN, Inst, Seq, Value, join
from cachelint.model import Finding


class CannotPlan(Exception):
    """Why one field, or a whole type (``field`` is None), is left alone."""

    def __init__(self, reason: str, kind: str, field: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind
        self.field = field


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field that may move: its findings, its value joined over all writes, where forward writes it."""

    name: str
    findings: tuple[Finding, ...]
    value: Value
    recompute: bool
    split: str = ""
    """Why only the program knows whether the value is a tensor, empty when it surely is: what is one is saved, and
    anything else stays on the receiver."""

    @property
    def container(self) -> bool:
        """Whether it is a list, tuple or dict."""
        return isinstance(self.value.ref, Seq)

    @property
    def plain(self) -> bool:
        """Whether it surely is one tensor or None."""
        return not isinstance(self.value.ref, (Seq, Inst)) and not self.split


_BY_RULE = {
    "CL107": (
        "it outlives the step: it needs a pin until it is invalidated, which no saved tensor gives",
        "cross-step",
    ),
    "CL108": (
        "it lies in a storage that other calls reuse: saving it would keep the reference, not the content "
        "(save the inputs and fill it again in backward, or save a copy)",
        "workspace",
    ),
    "CL109": ("a closure carries it: the closure's captures would have to become arguments", "closure"),
    "CL111": (
        "it travels outside ctx, where the next call overwrites it: return it from forward as an output, mark it "
        "non-differentiable and save that",
        "side channel",
    ),
}


def judge(name: str, findings: Sequence[Finding], scopes: Sequence[Scope], routines: Iterable[Routine]) -> Field:
    """The field with what is known of it. Raises CannotPlan with the reason to leave it alone."""
    for finding in findings:
        if finding.code in _BY_RULE:
            raise CannotPlan(*_BY_RULE[finding.code], name)
    value = _value(name, scopes)
    if value is None:
        raise CannotPlan("it is not written through the receiver's name", "indirect write", name)
    _check_foreign(name, value, scopes)
    routines = list(routines)
    _check_accumulator(name, value, routines)
    _check_filled(name, value, scopes)
    split = ""
    if isinstance(value.ref, Seq):
        if any(part.kinds & DEVICE and part.sure == LOW for part in value.ref.each()):
            split = "nothing but a name or a use suggests that its items are tensors"
        elif _guessed(value, scopes) and not _used_as_tensor(name, routines, value):
            split = "it comes out of a mixed list or of unknown code, and backward does nothing that only tensors can"
        if not split and value.kinds & NONE:
            split = "it is a container on some paths and None on others"
    elif isinstance(value.ref, Inst) and value.kinds & DEVICE:
        split = f"it is a tensor, or an object of class {value.ref.info.name}"
    elif not isinstance(value.ref, Inst):
        split = _split(value, name)
        thin = value.sure != HIGH or _told_by_callers(value)
        if not split and thin and not value.ref and not _used_as_tensor(name, routines, value):
            split = "the evidence that it is a tensor is thin, and backward does nothing that only tensors can"
        if not split and _guessed(value, scopes) and not _used_as_tensor(name, routines, value):
            split = "it comes out of a mixed list or of unknown code, and backward does nothing that only tensors can"
    if split and not value.ref and _SEVERAL.fullmatch(name):
        raise CannotPlan(
            "its name says that it holds several things, and nothing shows which", "may be a container", name
        )
    for routine in routines:
        for use in routine.uses:
            if use.field == name:
                _check_use(use, routine)
    for routine in routines:
        if routine.roles & {BACKWARD, JVP}:
            for load in routine.of("load", name):
                _check_identity(load, routine, name, isinstance(value.ref, Inst) and not split)
    recompute = not split and not isinstance(value.ref, Inst) and all(f.code == "CL102" for f in findings)
    return Field(name, tuple(findings), value, recompute, split)


def _check_foreign(name: str, value: Value, scopes: Sequence[Scope]) -> None:
    """Refuse what code uses by attributes that tensors don't have: hooks would give back an object without them."""
    roots = set(value.roots)
    parts = value.ref.each() if isinstance(value.ref, Seq) else [value]
    roots.update(*(part.roots for part in parts))
    # What surely is a tensor has no methods of containers: these belong to what it was taken out of.
    sure = all(part.kinds & DEVICE and not part.kinds & ~(DEVICE | NONE) and part.sure == HIGH for part in parts)
    harmless = _SPARSE | (_CONTAINER | {f"{name}()" for name in _CONTAINER} if sure else set())
    for scope in scopes:
        symbols = scope.context.analysis.machine.symbols
        for root in roots:
            symbol = symbols.get(root.removeprefix("p:")) if root.startswith("p:") else None
            foreign = symbol.foreign - harmless if symbol is not None else None
            if foreign:
                raise CannotPlan(
                    f"`.{min(foreign)}` is used of it, which saved-tensor hooks do not bring back",
                    "object identity",
                    name,
                )


_SPARSE = frozenset(("_indices", "_values", "_nnz", "_indices()", "_values()", "_nnz()"))
"""What every tensor has, though only those in a sparse layout answer."""

_GRADIENTS = frozenset(("grad", "main_grad"))


def _check_accumulator(name: str, value: Value, routines: Sequence[Routine]) -> None:
    """Refuse what lives longer than the call and is changed in place on purpose: the version check would stop backward."""
    for routine in routines:
        flow = routine.flow
        if routine.roles & {BACKWARD, JVP}:
            line = changed_line(name, routine) if any(root.startswith("p:") for root in value.roots) else 0
            if line:
                raise CannotPlan(
                    f"backward changes the input in place (line {line}), and the version check would stop the next one",
                    "changed in backward",
                    name,
                )
            continue
        for use in routine.of("store", name):
            if use.nested or isinstance(use.node, ast.Call):
                continue
            todo: list[ast.AST] = [flow.statement(use.node)]
            seen: set[str] = set()
            while todo:
                for node in walk(todo.pop()):
                    if isinstance(node, ast.Attribute) and node.attr in _GRADIENTS and isinstance(node.ctx, ast.Load):
                        raise CannotPlan(
                            f"it is `{code_of(node)}`, into which gradients are accumulated in place: the version "
                            "check would stop backward",
                            "accumulated gradient",
                            name,
                        )
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in seen:
                        seen.add(node.id)
                        todo += [_value_of(flow, bound) for bound in flow.bindings.get(node.id, ())]


_BUFFER = re.compile(r"(?:^|_)(?:grad|dgrad|wgrad|buf|buffer|acc|accum|workspace)(?:_|$)")
_SEVERAL = re.compile(r"(?:\w*_)?(?:args|arguments|inputs|kwargs|operands|outputs|parameters|params|states|tensors)")


def _check_filled(name: str, value: Value, scopes: Sequence[Scope]) -> None:
    """Refuse an input that backward fills, or that is called what one is called that backward fills."""
    given = {root for root in value.roots if root.startswith("p:")}
    if not given:
        return
    for scope in scopes:
        for mutation in scope.context.analysis.log.mutations:
            if mutation.phase != "forward" and mutation.value.roots & given:
                line = getattr(mutation.node, "lineno", 0)
                raise CannotPlan(
                    f"backward changes the input in place (line {line}), and the version check would stop the next one",
                    "changed in backward",
                    name,
                )
    if value.param is not None and (_BUFFER.search(name) or _BUFFER.search(value.param)):
        raise CannotPlan(
            "by its name it is a buffer of the caller's, and if backward fills it, the version check would stop the next one",
            "changed in backward",
            name,
        )


def _value_of(flow: Flow, bound: ast.AST) -> ast.AST:
    """The value that an assignment of just this name gives it; the name itself where it is bound in another way."""
    parent = flow.parents.get(bound)
    if isinstance(parent, ast.Assign) and isinstance(parent.value, (ast.Attribute, ast.Name, ast.IfExp)):
        return parent.value
    return bound


def changed_line(name: str, routine: Routine) -> int:
    """The line on which a backward changes a field in place, 0 where it does not."""
    flow = routine.flow
    nodes: list[ast.expr] = [use.node for use in routine.of("load", name)]
    for node in list(nodes):
        target = _bound_to(flow, node)
        if target is not None and len(flow.bindings.get(target.id, ())) == 1:
            nodes += flow.loads(target.id)
    table = operators()
    for node in nodes:
        parent = flow.parents.get(node)
        if isinstance(parent, ast.AugAssign) and parent.target is node:
            return node.lineno
        if isinstance(parent, ast.Subscript) and parent.value is node and not isinstance(parent.ctx, ast.Load):
            return node.lineno
        if (
            isinstance(parent, ast.Attribute)
            and parent.value is node
            and isinstance(flow.parents.get(parent), ast.Call)
        ):
            in_place = parent.attr.endswith("_") and not parent.attr.startswith("_")
            if in_place and parent.attr not in table.not_inplace:
                return node.lineno
    return 0


def _bound_to(flow: Flow, node: ast.expr) -> ast.Name | None:
    """The name that an assignment gives exactly this value: ``a = x``, or ``a, b = x, y``."""
    parent = flow.parents.get(node)
    target: ast.expr | None = None
    if isinstance(parent, ast.Tuple):
        above = flow.parents.get(parent)
        if isinstance(above, ast.Assign) and above.value is parent and isinstance(above.targets[0], ast.Tuple):
            targets = above.targets[0].elts
            if len(targets) == len(parent.elts) and not any(isinstance(t, ast.Starred) for t in targets):
                target = targets[parent.elts.index(node)]
    elif isinstance(parent, ast.Assign) and parent.value is node and len(parent.targets) == 1:
        target = parent.targets[0]
    return target if isinstance(target, ast.Name) else None


_LOOSE = frozenset(("star", "item", "kwarg", "result", "attr", "self"))


def _guessed(value: Value, scopes: Sequence[Scope]) -> bool:
    """Whether a value is one of many that share their evidence (an item of ``*args``), or comes from unknown code."""
    values = [value, *value.ref.each()] if isinstance(value.ref, Seq) else [value]
    for scope in scopes:
        symbols = scope.context.analysis.machine.symbols
        for one in values:
            names = {one.param, *(root[2:] for root in one.roots if root.startswith("p:"))}
            if any(name in symbols and symbols[name].kind in _LOOSE for name in names if name):
                return True
    return False


def _told_by_callers(value: Value) -> bool:
    """Whether all that is known of a value is what some caller passes: a list of tensors looks like a tensor there."""
    return value.why is not None and value.why.before is None and value.why.text.startswith("a caller passes")


def _used_as_tensor(name: str, routines: Sequence[Routine], value: Value) -> bool:
    """Whether backward does something with the field, or with each item of it, that only tensors can do; or forward
    with the parameter that it is."""
    table = operators()
    for routine in routines:
        flow = routine.flow
        nodes: list[ast.expr] = [use.node for use in routine.of("load", name)]
        if not routine.roles & {BACKWARD, JVP}:
            nodes += flow.loads(value.param) if value.param in flow.parameters and value.param else []
        for node in _followed(flow, nodes):
            parent = flow.parents.get(node)
            if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.MatMult):
                return True
            if isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.slice, ast.Tuple):
                if any(isinstance(part, ast.Slice) for part in parent.slice.elts):
                    return True
            if isinstance(parent, ast.Attribute) and parent.value is node:
                if (parent.attr in table.methods and parent.attr not in _CONTAINER) or parent.attr in _TENSOR_ONLY:
                    return True
    return False


def _followed(flow: Flow, nodes: Iterable[ast.expr]) -> list[ast.expr]:
    """Some expressions, the names that are bound to them, and the items that are taken out of them."""
    found = list(nodes)
    for node in found:
        parent = flow.parents.get(node)
        target: ast.expr | None = None
        if isinstance(parent, ast.Attribute) and parent.value is node and parent.attr in ("items", "values"):
            call = flow.parents.get(parent)
            above = flow.parents.get(call) if isinstance(call, ast.Call) else None
            if isinstance(above, (ast.For, ast.comprehension)) and above.iter is call:
                target = above.target
                if parent.attr == "items":
                    target = target.elts[-1] if isinstance(target, ast.Tuple) else None
        elif isinstance(parent, ast.Assign) and parent.value is node and len(parent.targets) == 1:
            target = parent.targets[0]
        elif isinstance(parent, (ast.For, ast.comprehension)) and parent.iter is node:
            target = parent.target
        elif isinstance(parent, ast.Subscript) and parent.value is node:
            found.append(parent)
        if isinstance(target, ast.Name):
            found += [load for load in flow.loads(target.id) if load not in found and not _outlived(flow, target, load)]
    return found


def _outlived(flow: Flow, target: ast.Name, load: ast.Name) -> bool:
    """Whether a name that the body binds to something has been bound to something else by the time it is read."""
    first = flow.statement(target)
    later = [flow.statement(n) for n in flow.bindings.get(target.id, ()) if n is not target]
    place = flow.top(first)
    between = [s for s in later if flow.is_top(s) and place < flow.top(s) < flow.top(load)]
    return flow.is_top(first) and bool(between) and not flow.in_loop(target)


_TENSOR_ONLY = frozenset(("dtype", "device", "ndim", "is_cuda", "mT", "requires_grad"))


def _value(name: str, scopes: Sequence[Scope]) -> Value | None:
    value: Value | None = None
    for scope in scopes:
        for write in scope.context.analysis.log.writes:
            if write.field == name and write.phase == "forward":
                value = write.value if value is None else join(value, write.value)
    return value


def _split(value: Value, name: str) -> str:
    """Why a value need not be a tensor, empty where it is one; raises CannotPlan where it holds memory in another way."""
    if value.why is not None and any("numpy" in link.text for link in value.why.chain()):
        raise CannotPlan("it is an array of NumPy, and only tensors may be saved", "an array", name)
    if value.why is not None and any(_generator_state(link.text) for link in value.why.chain()):
        raise CannotPlan(
            "it is the state of generators, which need not be one tensor (often a dict or a list)",
            "generator state",
            name,
        )
    if value.kinds & UNKNOWN:
        return "nothing shows whether it is a tensor"
    if value.kinds & HOST:
        return "on some path it may hold a host value"
    return "nothing but its name or its use suggests that it is a tensor" if value.sure == LOW else ""


def _generator_state(text: str) -> bool:
    """Whether a link of evidence names a call that gives states in some container: not ``get_rng_state``."""
    made, _, what = text.partition(": ")
    several = "states" in made or "tracker" in made
    return what in ("a random draw", "generator state") and several


def _check_use(use: Use, routine: Routine) -> None:
    line = use.node.lineno
    forward = not routine.roles & {BACKWARD, JVP}
    if use.kind == "test":
        raise CannotPlan(f"line {line} asks whether the attribute is there", "tested for", use.field)
    if use.kind in ("store", "delete") and use.nested:
        raise CannotPlan(f"a nested function changes the attribute (line {line})", "nested write", use.field)
    if use.kind == "delete" and forward:
        raise CannotPlan(f"forward deletes the attribute again (line {line})", "deleted in forward", use.field)
    if use.kind in ("store", "load") and isinstance(use.node, ast.Call) and use.kind == "store":
        statement = routine.flow.statement(use.node)
        if not (isinstance(statement, ast.Expr) and statement.value is use.node):
            raise CannotPlan(f"setattr is used as a value (line {line})", "indirect write", use.field)
    if routine.roles & {BACKWARD, JVP} and len(routine.roles) > 1:
        roles = " and ".join(sorted(routine.roles))
        raise CannotPlan(f"{routine.name} uses it for {roles} alike", "shared helper", use.field)


_IDENTITY = frozenset(
    [
        "grad",
        "grad_fn",
        "main_grad",
        "register_hook",
        "retain_grad",
        "_base",
        "_version",
        "requires_grad_",
        "data",
        "set_",
        "_backward_hooks",
    ]
)
_PLAIN = frozenset(
    [
        "_indices",
        "_values",
        "_nnz",
        "T",
        "mT",
        "H",
        "mH",
        "shape",
        "dtype",
        "device",
        "ndim",
        "is_cuda",
        "is_sparse",
        "layout",
        "requires_grad",
        "is_leaf",
        "itemsize",
        "nbytes",
        "names",
        "real",
        "imag",
        "is_contiguous",
        "stride",
        "storage_offset",
        "size",
        "dim",
        "numel",
        "nelement",
        "element_size",
        "data_ptr",
        "untyped_storage",
        "get_device",
        "is_floating_point",
        "is_complex",
        "is_quantized",
        "is_meta",
    ]
)


def _check_identity(load: Use, routine: Routine, name: str, record: bool) -> None:
    """Refuse where backward relies on the very Python object: saved-tensor hooks give back a plain copy. A record has
    attributes of its own."""
    flow = routine.flow
    for node in _followed(flow, [load.node]):
        parent = flow.parents.get(node)
        if isinstance(parent, ast.Attribute):
            known = parent.attr in operators().methods or parent.attr in _PLAIN or parent.attr in operators().host_attrs
            in_place = parent.attr.endswith("_") and not parent.attr.startswith("_")
            container_method = parent.attr in _CONTAINER
            if (
                (parent.attr in _IDENTITY and not record)
                or isinstance(parent.ctx, ast.Store)
                or not (known or in_place or container_method or record)
            ):
                sets = not isinstance(parent.ctx, ast.Load)
                raise CannotPlan(
                    f"backward {'sets' if sets else 'uses'} `{parent.attr}` of the object itself (line {node.lineno}), "
                    + (
                        "and saved-tensor hooks bring back another"
                        if sets
                        else "which saved-tensor hooks do not bring back"
                    ),
                    "object identity",
                    name,
                )
        elif isinstance(parent, ast.Compare) and any(isinstance(op, (ast.Is, ast.IsNot)) for op in parent.ops):
            others = [o for o in (parent.left, *parent.comparators) if o is not node]
            if not all(isinstance(o, ast.Constant) and o.value is None for o in others):
                raise CannotPlan(f"line {node.lineno} compares it by identity", "object identity", name)
        elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and node in parent.args:
            if parent.func.id in ("isinstance", "type", "id") and not _is_plain_test(parent):
                raise CannotPlan(f"line {node.lineno} asks for its class or identity", "object identity", name)


_CONTAINER = frozenset(
    [
        "append",
        "extend",
        "pop",
        "items",
        "keys",
        "values",
        "get",
        "index",
        "count",
        "insert",
        "copy",
        "remove",
        "reverse",
        "sort",
    ]
)


def _is_plain_test(call: ast.Call) -> bool:
    """``isinstance(x, torch.Tensor)``, or a list, tuple or dict."""
    if not isinstance(call.func, ast.Name) or call.func.id != "isinstance" or len(call.args) != 2:
        return False
    kinds = call.args[1].elts if isinstance(call.args[1], ast.Tuple) else [call.args[1]]
    names = {k.attr if isinstance(k, ast.Attribute) else k.id if isinstance(k, ast.Name) else "" for k in kinds}
    return names <= {"Tensor", "list", "tuple", "dict"}


def tensor_only(value: Value) -> bool:
    """Whether a value is a tensor or None and surely nothing else."""
    return bool(value.kinds & DEVICE) and not value.kinds & (HOST | UNKNOWN) and not isinstance(value.ref, (Seq, Inst))
