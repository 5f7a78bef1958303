"""Fields that backward derives again from its live inputs, by the shortest slice of forward."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cachelint.fix.edits import After, Edit, Replace, Rewrite
from cachelint.fix.functions.autocast import modes_differ
from cachelint.fix.functions.backward import renamed
from cachelint.fix.functions.inputs import changed_in_place, input_kinds
from cachelint.fix.functions.scope import FORWARD as FORWARD_ROLE
from cachelint.fix.functions.scope import Routine, Scope
from cachelint.fix.functions.slices import NoSlice, Slice, Slicer
from cachelint.fix.layers.live import alias
from cachelint.fix.layers.view import BACKWARD, FORWARD, ClassView, MethodView, Use, is_none
from cachelint.index.walk import walk
from cachelint.infer.values import DEVICE, UNKNOWN, carried

HELPER = "_recompute"


@dataclass
class Derived:
    """Fields to derive, in the order in which forward sets them.

    ``statements`` are those of forward that make them; ``inputs`` forward's parameters that these need.
    ``writer`` is a method that only sets the fields, where there is one: it becomes the helper.
    """

    fields: list[str] = field(default_factory=list)
    statements: list[ast.stmt] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    writer: MethodView | None = None
    call: ast.Call | None = None


def derivable(view: ClassView, wanted: Sequence[str], live: Mapping[str, str]) -> tuple[list[Derived], dict[str, str]]:
    """How to derive fields, and for each of the others why it can't be."""
    why: dict[str, str] = {}
    groups: list[Derived] = []
    left = list(wanted)
    edited = _edited(view)
    for name in wanted:
        problem = "forward changes it in place" if name in edited else _uses_in_the_way(view, name)
        if problem:
            why[name] = problem
            left.remove(name)
    changed = changed_inputs(view)
    for writer in _writers(view, left):
        group = _by_writer(view, writer, left, live)
        if group is not None and not changed.intersection(group.inputs):
            groups.append(group)
            left = [name for name in left if name not in group.fields]
    group = _by_slice(view, left, live, why)
    if group.fields:
        groups.append(group)
    return groups, why


def _edited(view: ClassView) -> frozenset[str]:
    """The fields whose tensors forward changes in place."""
    assert view.forward is not None
    changed = changed_in_place(Scope(view.context), _routine(view))
    own = f"{view.forward.receiver}."
    return frozenset(name.removeprefix(own) for name in changed if name.startswith(own))


def _routine(view: ClassView) -> Routine:
    assert view.forward is not None
    path = view.context.analysis.unit.module.path
    return Routine(view.forward.node, view.forward.receiver, FORWARD_ROLE, True, path, view.info)


def _uses_in_the_way(view: ClassView, name: str) -> str:
    for use in view.of(name):
        if use.kind == "load" and use.method not in (view.forward, view.backward):
            return f"`{use.method.name}` reads it, too (line {use.node.lineno})"
        if use.kind in ("change", "delete"):
            return f"it is changed in place (line {use.node.lineno})"
        if use.kind == "store" and FORWARD not in use.method.roles and not (use.plain and is_none(use.value)):
            return f"`{use.method.name}` sets it (line {use.node.lineno})"
        if use.kind == "store" and BACKWARD in use.method.roles:
            return f"backward sets it (line {use.node.lineno})"
    if any(use.method.flow.nested(use.node) for use in view.of(name) if use.method is view.forward):
        return "a nested function of forward uses it"
    return ""


# -- a method that only sets them ------------------------------------------------------------------------------------


def _writers(view: ClassView, names: Sequence[str]) -> list[MethodView]:
    found: list[MethodView] = []
    for name in names:
        for use in view.of(name, "store"):
            if use.method is not view.forward and FORWARD in use.method.roles and use.method not in found:
                found.append(use.method)
    return found


def _by_writer(view: ClassView, method: MethodView, names: Sequence[str], live: Mapping[str, str]) -> Derived | None:
    """A helper of forward that sets nothing but these fields, gives nothing, and is called once, by forward."""
    stores = [u for uses in view.fields.values() for u in uses if u.method is method and u.kind in ("store", "change")]
    fields = list(dict.fromkeys(u.node.attr for u in sorted(stores, key=lambda u: u.node.lineno)))
    calls = [(m, c) for m in view.methods.values() for c in m.calls.get(method.name, ())]
    if not fields or any(name not in names for name in fields) or len(calls) != 1 or calls[0][0] is not view.forward:
        return None
    caller, call = calls[0]
    statement = caller.flow.statement(call)
    if not isinstance(statement, ast.Expr) or statement.value is not call or not caller.flow.is_top(statement):
        return None
    if (
        call.keywords
        or any(isinstance(a, ast.Starred) for a in call.args)
        or method.flow.returns
        or method.node.decorator_list
    ):
        return None
    if any(not u.plain or not method.flow.is_top(u.statement) for u in stores) or len(stores) != len(fields):
        return None
    inputs = [alias(view, a, caller, statement) for a in call.args]
    if not all(name and name in live for name in inputs):
        return None
    if any(FORWARD in u.method.roles and u.method not in (method, view.forward) for n in fields for u in view.of(n)):
        return None
    if not _pure(view, method, set(fields), set()):
        return None
    return Derived(fields, [u.statement for u in stores], inputs, method, call)


def _pure(view: ClassView, method: MethodView, fields: set[str], seen: set[str]) -> bool:
    """Whether a method changes nothing but ``fields``, and reads only what the constructor has set."""
    if method.name in seen:
        return True
    seen.add(method.name)
    for name, uses in view.fields.items():
        for use in uses:
            if use.method is method and name not in fields:
                if use.kind != "load" or not constant(view, name):
                    return False
    if any(isinstance(n, (ast.Global, ast.Nonlocal, ast.Yield, ast.Await)) for n in walk(method.node)):
        return False
    return all(name in view.methods and _pure(view, view.methods[name], set(), seen) for name in method.calls)


def changed_inputs(view: ClassView) -> frozenset[str]:
    """Parameters of forward whose content it changes in place, also through a view that it keeps in a field."""
    log = view.context.analysis.log
    roots: set[str] = set()
    for mutation in log.mutations:
        if mutation.phase == "forward":
            roots |= carried(mutation.value).roots
    for name, uses in view.fields.items():
        if any(FORWARD in use.method.roles and _changes(use) for use in uses):
            for write in log.writes:
                if write.field == name and write.phase == "forward":
                    roots |= carried(write.value).roots
    return frozenset(root[2:] for root in roots if root.startswith("p:"))


def _changes(use: Use) -> bool:
    """``self.f += 1``, ``self.f[0] = 1``, ``self.f.add_(1)``."""
    if use.kind == "change" or isinstance(use.statement, ast.AugAssign):
        return True
    above = use.method.flow.parents.get(use.node)
    return isinstance(above, ast.Attribute) and above.attr.endswith("_") and not above.attr.startswith("_")


def constant(view: ClassView, name: str) -> bool:
    """Whether a field is a host value that only the constructor sets."""
    stores = view.of(name, "store", "change", "delete")
    if not stores or any(use.method.name != "__init__" for use in stores):
        return False
    if all(_host_parameter(use.method, use.value) for use in stores):
        return True
    value = view.context.analysis.log.initial.get(name)
    return value is not None and not carried(value).kinds & (DEVICE | UNKNOWN)


def _host_parameter(method: MethodView, value: ast.expr | None) -> bool:
    """Whether a value is a number, a string or a truth value by its looks: a literal, or a parameter of that kind."""
    if isinstance(value, ast.Constant):
        return value.value is not None
    if not isinstance(value, ast.Name) or value.id in method.flow.bindings:
        return False
    spec = method.node.args
    every = [*spec.posonlyargs, *spec.args]
    defaults = [*[None] * (len(every) - len(spec.defaults)), *spec.defaults]
    pairs = [*zip(every, defaults, strict=True), *zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    for parameter, default in pairs:
        if parameter.arg == value.id:
            named = isinstance(parameter.annotation, ast.Name) and parameter.annotation.id in _HOST_TYPES
            literal = isinstance(default, ast.Constant) and default.value is not None and parameter.annotation is None
            return named or literal
    return False


_HOST_TYPES = frozenset(("int", "float", "bool", "str"))


# -- slices of forward ------------------------------------------------------------------------------------------------


def _by_slice(view: ClassView, names: Sequence[str], live: Mapping[str, str], why: dict[str, str]) -> Derived:
    forward = view.forward
    assert forward is not None
    assert view.backward is not None
    writes: dict[str, Use] = {}
    for name in names:
        made = [u for u in view.of(name, "store") if FORWARD in u.method.roles]
        if len(made) != 1 or made[0].method is not forward or not made[0].plain or made[0].value is None:
            why[name] = "it is not set once, by one statement of forward"
        else:
            writes[name] = made[0]
    slicer = _slicer(view, writes)
    slices: dict[str, Slice] = {}
    for name, use in writes.items():
        assert use.value is not None
        try:
            slices[name] = slicer.slice(use.value, use.statement, len(forward.node.body))
        except NoSlice as error:
            why[name] = str(error)
    while True:
        bad = {name: reason for name, part in slices.items() if (reason := _missing(part, slices, writes, live))}
        if not bad:
            break
        why.update(bad)
        slices = {name: part for name, part in slices.items() if name not in bad}
    statements = {writes[name].statement for name in slices}
    inputs: list[str] = []
    for part in slices.values():
        statements |= {step.statement for step in part.steps}
        inputs += [n for n in (*part.tensors, *part.hosts) if n not in inputs]
    ordered = sorted(statements, key=forward.node.body.index)
    order = [n for s in ordered for n in slices if writes[n].statement is s]
    every = [n for n in forward.positional if n in inputs]
    return Derived(order, ordered, every)


def _missing(part: Slice, slices: Mapping[str, Slice], writes: Mapping[str, Use], live: Mapping[str, str]) -> str:
    for name in part.fields:
        if name in writes and name not in slices:
            return f"it needs `{name}`, which can't be derived"
    for name in (*part.tensors, *part.hosts):
        if name not in live:
            return f"backward does not receive `{name}`"
    if len({*part.fields} & writes.keys()) == 0 and not part.tensors:
        return "it does not come from the live inputs"
    return ""


def _slicer(view: ClassView, writes: Mapping[str, Use]) -> Slicer:
    forward, backward = view.forward, view.backward
    assert forward is not None
    assert backward is not None
    unit = view.context.analysis.unit
    routine = _routine(view)
    scope = Scope(view.context)
    dotted: dict[str, str] = {}
    for name in forward.flow.used:
        found = view.context.project.resolve(unit.module, name)
        if found is not None and found.binding is None and found.module is None and found.dotted:
            dotted[name] = found.dotted
    fields: dict[str, tuple[ast.expr, ast.stmt] | None] = {}
    for name in view.fields:
        if constant(view, name):
            fields[name] = None
    for name, use in writes.items():
        assert use.value is not None
        fields[name] = (use.value, use.statement)
    kinds = input_kinds(scope, routine)
    return Slicer(
        routine,
        kinds,
        frozenset(),
        changed_in_place(scope, routine) | changed_inputs(view),
        frozenset(),
        dotted,
        fields,
        modes_differ([forward.node], [backward.node], unit.module),
    )


# -- code --------------------------------------------------------------------------------------------------------------


@dataclass
class Written:
    """What becomes of the fields: ``known`` is the name that each has in backward, ``lines`` make these."""

    edits: list[Edit] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)
    """The names that they have in forward."""
    lines: list[str] = field(default_factory=list)
    gone: set[ast.stmt] = field(default_factory=set)
    """Statements of forward that are rewritten or dropped as a whole."""
    helper: tuple[str, ...] = ()


def write(
    view: ClassView, group: Derived, live: Mapping[str, str], taken: set[str], known: Mapping[str, str]
) -> Written:
    """Turn fields into locals of forward and backward. ``known`` has the fields that are gone already."""
    if group.writer is not None:
        return _write_writer(view, group, live, taken)
    return _write_slice(view, group, live, taken, known)


def _names(view: ClassView, method: MethodView, fields: Sequence[str], taken: set[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for name in fields:
        names[name] = method.flow.fresh(name.lstrip("_") or name, (*taken, *names.values()))
    return names


def _read(view: ClassView, method: MethodView, name: str, without: Sequence[ast.stmt]) -> bool:
    return any(u.method is method and u.statement not in without for u in view.of(name, "load"))


def _write_writer(view: ClassView, group: Derived, live: Mapping[str, str], taken: set[str]) -> Written:
    forward, backward, method = view.forward, view.backward, group.writer
    assert forward is not None
    assert backward is not None
    assert method is not None
    assert group.call is not None
    text, out = view.text, Written()
    stores = sorted(
        (u for n in group.fields for u in view.of(n, "store") if u.method is method), key=lambda u: u.node.lineno
    )
    loads = [u for n in group.fields for u in view.of(n, "load") if u.method is method]
    tail = method.node.body[-len(stores) :]
    if not loads and [u.statement for u in stores] == tail:
        code = ", ".join(text.source(u.value) for u in stores if u.value is not None)
        for use in stores[:-1]:
            out.edits.append(Rewrite(text.span(use.statement)))
        out.edits.append(Rewrite(text.span(stores[-1].statement), (f"return {code}",)))
    else:
        local = _names(view, method, group.fields, set())
        out.edits += [Replace(text.span(u.node), local[u.node.attr]) for u in (*stores, *loads)]
        out.edits.append(
            After(text.span(method.node.body[-1]), (f"return {', '.join(local[n] for n in group.fields)}",))
        )
    if is_none(method.node.returns):
        assert method.node.returns is not None
        out.edits.append(Replace(text.span(method.node.returns), _annotation(view, len(group.fields))))
    out.inside = _names(view, forward, group.fields, set())
    out.known = _names(view, backward, group.fields, taken)
    call = text.source(group.call)
    statement = forward.flow.statement(group.call)
    out.gone.add(statement)
    targets = [out.inside[n] if _read(view, forward, n, ()) else "_" for n in group.fields]
    out.edits.append(
        Rewrite(text.span(statement), (f"{', '.join(targets)} = {call}" if set(targets) != {"_"} else call,))
    )
    arguments = ", ".join(live[name] for name in group.inputs)
    back = [out.known[n] if _read(view, backward, n, ()) else "_" for n in group.fields]
    out.lines.append(f"{', '.join(back)} = {backward.receiver}.{method.name}({arguments})")
    return out


def _write_slice(
    view: ClassView, group: Derived, live: Mapping[str, str], taken: set[str], known: Mapping[str, str]
) -> Written:
    forward, backward = view.forward, view.backward
    assert forward is not None
    assert backward is not None
    text, out = view.text, Written()
    out.inside = _names(view, forward, group.fields, set())
    out.known = _names(view, backward, group.fields, taken)
    if len(group.statements) == 1:
        (name,) = group.fields
        (use,) = (u for u in view.of(name, "store") if u.method is forward)
        assert use.value is not None
        value = _replaced(view, forward, use.value, known)
        if _read(view, forward, name, ()):
            out.edits.append(Rewrite(text.span(use.statement), (f"{out.inside[name]} = {value}",)))
        else:
            out.edits.append(Rewrite(text.span(use.statement)))
        out.gone.add(use.statement)
        own = {n: live[n] for n in group.inputs if live[n] != n}
        receiver = {forward.receiver: backward.receiver} if forward.receiver != backward.receiver else {}
        out.lines.append(f"{out.known[name]} = {renamed(f'({value})', {**own, **receiver})[1:-1]}")
        return out
    # More than a line: a helper of both.
    inside = {n: out.inside[n] for n in group.fields}
    body: list[str] = []
    bound: list[str] = []
    for statement in group.statements:
        assert isinstance(statement, (ast.Assign, ast.AnnAssign))
        code = _replaced(view, forward, statement, {**known, **inside})
        body += [line.removeprefix(" " * statement.col_offset) for line in code.splitlines()]
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        bound += [n.id for t in targets for n in walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    rest = [s for s in forward.node.body if s not in group.statements]
    used = {n.id for s in rest for n in walk(s) if isinstance(n, ast.Name)}
    locals_ = [n for n in dict.fromkeys(bound) if n in used]
    results = [*(inside[n] for n in group.fields), *locals_]
    helper = view.fresh_method(HELPER)
    ahead = [inside[n] if _read(view, forward, n, group.statements) else "_" for n in group.fields] + locals_
    behind = [out.known[n] if _read(view, backward, n, ()) else "_" for n in group.fields] + ["_"] * len(locals_)
    first = f"{forward.receiver}.{helper}({', '.join(group.inputs)})"
    out.edits.append(Rewrite(text.span(group.statements[0]), (f"{', '.join(ahead)} = {first}",)))
    out.edits += [Rewrite(text.span(s)) for s in group.statements[1:]]
    out.gone.update(group.statements)
    second = f"{backward.receiver}.{helper}({', '.join(live[n] for n in group.inputs)})"
    out.lines.append(f"{', '.join(behind)} = {second}")
    annotated = {a.arg: a.annotation for a in (*forward.node.args.posonlyargs, *forward.node.args.args)}
    parameters = [forward.receiver]
    for name in group.inputs:
        kind = annotated.get(name)
        parameters.append(f"{name}: {text.source(kind)}" if kind is not None else name)
    returns = f" -> {_annotation(view, len(results))}" if forward.node.returns is not None else ""
    out.helper = (
        "",
        f"def {helper}({', '.join(parameters)}){returns}:",
        f'    """{_told(results)}, which forward and backward derive from the live inputs."""',
        *(f"    {line}" for line in body),
        f"    return {', '.join(results)}",
    )
    return out


def _told(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def _annotation(view: ClassView, count: int) -> str:
    assert view.forward is not None
    own = view.forward.node.returns
    kind = view.text.source(own) if isinstance(own, (ast.Name, ast.Attribute)) else "Tensor"
    return kind if count == 1 else f"tuple[{', '.join([kind] * count)}]"


def _replaced(view: ClassView, method: MethodView, node: ast.AST, known: Mapping[str, str]) -> str:
    """The text of a node with fields replaced."""
    changes = {}
    for item in walk(node):
        if isinstance(item, ast.Attribute) and isinstance(item.value, ast.Name) and item.value.id == method.receiver:
            if item.attr in known:
                changes[view.text.span(item)] = known[item.attr]
    return view.text.source(node, changes)


def released(view: ClassView, group: Derived, inside: Mapping[str, str]) -> list[Edit]:
    """``del`` for locals of forward that it does not need to its end."""
    forward = view.forward
    assert forward is not None
    by_place: dict[int, list[str]] = {}
    for name in group.fields:
        tops = [forward.flow.top(u.node) for u in view.of(name, "load") if u.method is forward]
        tops = [top for top in tops if forward.node.body[top] not in group.statements]
        if tops and max(tops) < len(forward.node.body) - 1:
            by_place.setdefault(max(tops), []).append(inside[name])
    return [
        After(view.text.span(forward.node.body[top]), (f"del {', '.join(names)}",)) for top, names in by_place.items()
    ]


def first_use(
    view: ClassView, method: MethodView, fields: Sequence[str], dropped: Sequence[ast.stmt]
) -> ast.stmt | None:
    """The statement of the method's body in front of which the fields must be there."""
    tops = [method.flow.top(u.node) for n in fields for u in view.of(n, "load") if u.method is method]
    tops = [top for top in tops if method.node.body[top] not in dropped]
    return method.node.body[min(tops)] if tops else None
