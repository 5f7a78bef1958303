"""What a kept value holds besides itself: captures of a closure, layers of its own, slots that every call shares."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from cachelint.index.walk import walk
from cachelint.infer.optable import operators
from cachelint.infer.values import (
    DEVICE,
    HOST,
    UNKNOWN,
    Bound,
    Func,
    Inst,
    Partial,
    Seq,
    Value,
    Why,
    carried,
    join,
    replace,
)

if TYPE_CHECKING:
    from cachelint.collect.log import Outside
    from cachelint.infer.analysis import Analysis

_CLOSURE: Final = frozenset(("closure",))


def captured(value: Value, depth: int = 0) -> Value | None:
    """The tensors that a function value holds: by capture, as a default or as a bound argument. None for none."""
    ref = value.ref
    parts: list[Value] = []
    if isinstance(ref, Func):
        parts = _free(ref)
    elif isinstance(ref, Partial):
        parts = [*ref.args, *ref.kwargs.values()]
        inner = captured(ref.func, depth + 1)
        parts += [inner] if inner is not None else []
    elif isinstance(ref, Bound) and isinstance(ref.receiver.ref, Inst) and ref.receiver.ref.built_here:
        if "initial" not in ref.receiver.tags:
            parts = [ref.receiver]
    elif isinstance(ref, Seq) and depth < 3:
        parts = [part for item in ref.each() if (part := captured(item, depth + 1)) is not None]
    result: Value | None = None
    for part in parts:
        full = carried(part)
        if full.kinds & (DEVICE | UNKNOWN):
            plain = replace(full, ref=None, param=None)
            result = plain if result is None else join(result, plain)
    return None if result is None else replace(result, tags=result.tags - {"container"} | _CLOSURE)


def _free(func: Func) -> list[Value]:
    """The values of the names that a nested function takes from the function around it."""
    closure = func.env
    if closure is None:
        return []
    args = func.node.args
    own = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
    own |= {a.arg for a in (args.vararg, args.kwarg) if a is not None}
    body = func.node.body if isinstance(func.node.body, list) else [func.node.body]
    loaded: set[str] = set()
    as_objects: list[str] = []
    for statement in body:
        for node in walk(statement):
            if isinstance(node, ast.Name):
                (loaded if isinstance(node.ctx, ast.Load) else own).add(node.id)
            elif isinstance(node, ast.Attribute) and _of_objects(node.attr):
                base = node.value.value if isinstance(node.value, ast.Subscript) else node.value
                as_objects += [base.id] if isinstance(base, ast.Name) else []
    reads = [n.id for s in body for n in walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    # A parameter that is held for what its owner hung on it, `weight.main_grad`: its values go another way.
    loaded -= {name for name in as_objects if as_objects.count(name) == reads.count(name)}
    wanted = loaded - own
    for default in (*args.defaults, *args.kw_defaults):
        if isinstance(default, ast.Name):
            wanted.add(default.id)
    return [found for name in sorted(wanted) if (found := closure.find(name)) is not None]


def _of_objects(attribute: str) -> bool:
    """Whether no tensor has an attribute of that name by itself."""
    table = operators()
    known = (table.methods, table.method_multi, table.host_attrs, table.plain_attrs, table.alias_attrs)
    return not any(attribute in names for names in known) and not attribute.endswith("_") and attribute != "grad"


def is_layer(value: Value, analysis: Analysis) -> bool:
    """Whether a value is a layer of the project (or a container of layers): a handle, whose state is its own affair."""
    ref = value.ref
    if isinstance(ref, Inst):
        find = analysis.machine.find_method
        return find(ref.info, "forward") is not None and find(ref.info, "backward") is not None
    if isinstance(ref, Seq):
        items = [item for item in ref.each() if item.kinds & ~4]
        return bool(items) and all(isinstance(item.ref, Inst) and is_layer(item, analysis) for item in items)
    return False


def written_globals(analysis: Analysis) -> frozenset[str]:
    """Storages of module-level and class-level tensors into which forward writes."""
    log = analysis.log
    roots = {r for m in log.mutations if m.phase == "forward" for r in m.value.roots if r.startswith("g:")}
    for launch in log.launches:
        if any(r.startswith("g:") for _, value in launch.values for r in value.roots):
            from cachelint.infer.kernels import written_parameters

            shared = {n: v for n, v in launch.values if any(r.startswith("g:") for r in v.roots)}
            written = written_parameters(launch.func, shared)
            roots |= {r for name in written for r in shared[name].roots if r.startswith("g:")}
    return frozenset(roots)


def slots(analysis: Analysis) -> list[tuple[Outside, Value]]:
    """Tensors that forward puts into something shared and that backward takes from there, one entry a slot."""
    log = analysis.log
    if not log.stores or not log.fetches:
        return []
    found: list[tuple[Outside, Value]] = []
    fetched: dict[str, set[str]] = {}
    for fetch in log.fetches:
        if fetch.phase == "backward":
            fetched.setdefault(fetch.name, set()).add(fetch.function)
    for name, readers in fetched.items():
        stores = [s for s in log.stores if s.name == name and s.phase == "forward" and s.value is not None]
        tensors = [s for s in stores if s.value is not None and carried(s.value).kinds & DEVICE]
        # A helper that fills and hands out a cache is asked by both passes: nothing travels through it.
        if not tensors or readers & {s.function for s in log.stores if s.name == name}:
            continue
        value = carried(tensors[0].value)  # type: ignore[arg-type]
        for store in tensors[1:]:
            value = join(value, carried(store.value))  # type: ignore[arg-type]
        line = getattr(tensors[0].node, "lineno", 0)
        why = Why(tensors[0].file, line, f"stored in `{name}`, which every call shares", value.why)
        found.append(
            (
                tensors[0],
                replace(
                    value,
                    kinds=value.kinds & ~HOST or value.kinds,
                    ref=None,
                    why=why,
                    tags=value.tags | {"side-channel"},
                ),
            )
        )
    return found
