"""CL206: backward accepts live inputs, never reads them, and reads a cache instead."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import loaded, names
from cachelint.infer.analysis import options
from cachelint.model import FieldClass, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """A backward none of whose live inputs is read, while it reads a field that they would give."""
    unit = context.analysis.unit
    if unit.trainer or unit.dialect.name not in ("graph-node", "layer"):
        return
    fields = [f for f in context.report.fields if f.read and f.cls is FieldClass.RECOMPUTE and not f.persistent]
    for method in unit.backward[:1]:
        node = method.node
        switches = options(node)
        live = [name for name in names(node)[2:] if name not in switches] + (
            [node.args.vararg.arg] if node.args.vararg is not None else []
        )
        if not fields or not live or method.module is not unit.module or any(name.startswith("_") for name in live):
            continue
        used = loaded(node)
        if used & set(live):
            continue
        last = node.body[-1]
        if isinstance(last, ast.Raise):
            continue
        arguments = ", ".join(f"`{name}`" for name in live)
        kept = ", ".join(f"`self.{field.field}`" for field in fields)
        place: ast.AST = node.args.args[2] if len(node.args.args) > 2 else node.args.vararg or node
        yield context.at(
            rule,
            place,
            f"backward never reads its live input {arguments} and takes {kept} instead, which belongs to the last forward. "
            "Read the argument and drop the field",
            field=fields[0],
        )
