"""A cache that outlives the step is kept by ``Persistent``: pinned until it is invalidated."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from cachelint.checks import FileContext, TypeContext
from cachelint.fix.edits import Edit, Outcome, Plan, Refusal, Replace, Rewrite, Span, Text
from cachelint.fix.functions.fields import CannotPlan
from cachelint.fix.layers.contract import RUNTIME, contract_of, imported
from cachelint.fix.layers.view import ClassView, MethodView, Use, is_none, outside_reader
from cachelint.index.walk import walk
from cachelint.infer.values import DEVICE, HOST, UNKNOWN, Seq
from cachelint.model import Applicability, Finding

CODES = frozenset(("CL107",))
KEEPER = "Persistent"
_DIALECTS = frozenset(("graph-node", "layer"))


def plan(file: FileContext, findings: Sequence[Finding]) -> Iterator[Outcome]:
    """A plan a field."""
    text = Text(file.module.text)
    for context in file.types:
        if context.report.dialect not in _DIALECTS or context.analysis.unit.info is None:
            continue
        own = [f for f in findings if f.type == context.report.type and f.field is not None]
        for finding in own:
            try:
                yield _plan(context, text, finding, finding.field or "")
            except CannotPlan as error:
                yield Refusal(finding, error.reason, error.kind)


def _plan(context: TypeContext, text: Text, finding: Finding, name: str) -> Plan:
    view = ClassView(context, text)
    contract = contract_of(view)
    if contract.module != RUNTIME:
        raise CannotPlan(
            f"it outlives the step, and {contract.module} is not known to have memory that is pinned until it is invalidated",
            "cross-step",
        )
    _check(view, context, name)
    edits: list[Edit] = []
    taken: list[Span] = []
    for use in view.of(name, "store"):
        span = text.span(use.statement)
        taken.append(span)
        edits.append(Rewrite(span, tuple(_write(view, use, name))))
    for use in view.of(name, "load"):
        if not any(span.covers(text.span(use.node)) for span in taken):
            edits.append(Replace(text.span(use.node), f"{text.source(use.node)}.get()"))
    edits += _guards(view, name)
    edits += imported(view, RUNTIME, KEEPER, text)
    doubt = contract.doubt
    return Plan(
        (finding,),
        tuple(edits),
        Applicability.UNSAFE if doubt else Applicability.SAFE,
        f"keep `{name}` in a {KEEPER}, pinned until it is invalidated",
        (text.span(view.node),),
        notes=(doubt,) if doubt else ("a deep copy of the layer starts with an empty one",),
    )


def _check(view: ClassView, context: TypeContext, name: str) -> None:
    if view.odd:
        raise CannotPlan(view.odd, "self escapes")
    outside = outside_reader(view, name)
    if outside:
        raise CannotPlan(f"{outside} uses it from outside the class, as a tensor", "read from outside")
    first = [u for u in view.of(name, "store") if u.method.name == "__init__" and u.method.flow.is_top(u.statement)]
    if len(first) != 1 or not first[0].plain or not is_none(first[0].value):
        raise CannotPlan("the constructor does not set it to None first", "not set in the constructor")
    for use in view.of(name):
        if use.kind not in ("store", "load"):
            raise CannotPlan(f"it is changed in place (line {use.node.lineno})", "changed in place")
        if use.kind == "store" and (not use.plain or use.value is None):
            raise CannotPlan(f"it is set inside another statement (line {use.node.lineno})", "indirect write")
    for write in context.analysis.log.writes:
        if write.field == name and write.phase == "forward":
            if isinstance(write.value.ref, Seq) or "container" in write.value.tags:
                raise CannotPlan("it is a container: each tensor in it would need a pin of its own", "container")
            if write.value.kinds & (HOST | UNKNOWN) or not write.value.kinds & DEVICE:
                raise CannotPlan("nothing shows that it always is a tensor", "unknown storage")


def _write(view: ClassView, use: Use, name: str) -> list[str]:
    """A store as statements: the constructor's, a None, a value, or a choice between these."""
    own = f"{use.method.receiver}.{name}"
    if use.method.name == "__init__" and is_none(use.value):
        return [f'{own} = {KEEPER}(name="{name}")']
    assert use.value is not None
    return _set(view, use.method, own, name, use.value)


def _set(view: ClassView, method: MethodView, own: str, name: str, value: ast.expr) -> list[str]:
    if is_none(value):
        return [f"{own}.invalidate()"]
    if isinstance(value, ast.IfExp) and (is_none(value.body) or is_none(value.orelse)):
        return [
            f"if {_code(view, method, name, value.test)}:",
            *(f"    {line}" for line in _set(view, method, own, name, value.body)),
            "else:",
            *(f"    {line}" for line in _set(view, method, own, name, value.orelse)),
        ]
    return [f"{own}.set({_code(view, method, name, value)})"]


def _code(view: ClassView, method: MethodView, name: str, node: ast.expr) -> str:
    changes = {
        view.text.span(item): f"{view.text.source(item)}.get()"
        for item in walk(node)
        if isinstance(item, ast.Attribute)
        and item.attr == name
        and isinstance(item.value, ast.Name)
        and item.value.id == method.receiver
    }
    return view.text.source(node, changes)


def _guards(view: ClassView, name: str) -> list[Edit]:
    """Where a flag decides whether the value is made, its absence has to decide, too: a copy of the layer has the flag
    and not the value."""
    edits: list[Edit] = []
    for use in view.of(name, "store"):
        if is_none(use.value) or use.method.name == "__init__":
            continue
        branch = use.method.flow.parents.get(use.statement)
        if not isinstance(branch, ast.If) or use.statement not in branch.body:
            continue
        fields = {n.attr for n in walk(branch.test) if isinstance(n, ast.Attribute)}
        if name in fields or not fields:
            continue
        set_there = {
            t.attr for s in branch.body if isinstance(s, ast.Assign) for t in s.targets if isinstance(t, ast.Attribute)
        }
        if fields & set_there:
            test = view.text.source(branch.test)
            if isinstance(branch.test, ast.BoolOp) and isinstance(branch.test.op, ast.And):
                test = f"({test})"
            own = f"{use.method.receiver}.{name}"
            edits.append(Replace(view.text.span(branch.test), f"{test} or {own}.get() is None"))
    return edits
