"""A caller that leaves out live inputs passes them: what the child's forward was given, where backward has it as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from cachelint.checks import FileContext, TypeContext
from cachelint.fix.edits import Extend, Outcome, Plan, Refusal, Text
from cachelint.fix.layers.live import alias, pairs
from cachelint.fix.layers.view import ClassView
from cachelint.model import Applicability, Finding

CODES = frozenset(("CL205",))


def plan(file: FileContext, findings: Sequence[Finding]) -> Iterator[Outcome]:
    """A plan a call."""
    text = Text(file.module.text)
    for context in file.types:
        own = [f for f in findings if f.type == context.report.type]
        if not own or context.analysis.unit.info is None:
            continue
        view = ClassView(context, text)
        for finding in own:
            yield _at(context, view, text, finding)


def _at(context: TypeContext, view: ClassView, text: Text, finding: Finding) -> Outcome:
    for child in context.composites.children(context.analysis):
        for call in child.backward:
            if (call.node.lineno, call.node.col_offset + 1) != (finding.line, finding.column):
                continue
            forwards = {id(c.node): c.node for c in child.forward if c.method in ("forward", "__call__")}
            if len(forwards) != 1 or len(call.node.args) != 1 or call.node.keywords:
                return Refusal(
                    finding, "the child runs more than once, or its backward is given other arguments", "several calls"
                )
            (forward,) = forwards.values()
            codes = _codes(view, text, forward)
            if isinstance(codes, str):
                return Refusal(finding, codes, "operand not at hand")
            return Plan(
                (finding,),
                (Extend(text.span(call.node), tuple(codes)),),
                Applicability.UNSAFE,
                f"pass {', '.join(f'`{code}`' for code in codes)}, which the child's forward was given",
                (text.span(view.node),),
                notes=(
                    "where backward runs after another forward, the child sees this call's input now, not that one's",
                ),
            )
    return Refusal(finding, "the call was not found", "not understood")


def _codes(view: ClassView, text: Text, forward: ast.Call) -> list[str] | str:
    """For each argument of the child's forward the code that gives it in backward, or why there is none."""
    main = view.forward
    if main is None or view.backward is None or forward.keywords or not any(n is forward for n in ast.walk(main.node)):
        return "the child's forward is not called by this class's own forward with plain arguments"
    statement = main.flow.statement(forward)
    known = pairs(view)
    codes: list[str] = []
    for argument in forward.args:
        shown = text.source(argument)
        if (
            isinstance(argument, ast.Attribute)
            and isinstance(argument.value, ast.Name)
            and argument.value.id == main.receiver
        ):
            stores = view.of(argument.attr, "store")
            inside = [use for use in stores if use.method is main]
            if len(inside) != 1 or any(use.method is view.backward for use in stores):
                return f"`{shown}` is set more than once"
            codes.append(shown)
            continue
        source = alias(view, argument, main, statement)
        if not source or source not in known:
            return f"backward does not have `{shown}`, which the child's forward was given: keep it and register it"
        if view.backward.flow.bindings.get(known[source]):
            return f"backward binds `{known[source]}` again"
        codes.append(known[source])
    return codes
