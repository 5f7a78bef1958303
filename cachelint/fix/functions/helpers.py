"""Helpers that are given the receiver: what they write is taken over by forward, what they read is handed to them."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cachelint.fix.edits import Extend, Replace
from cachelint.fix.functions.backward import Reader
from cachelint.fix.functions.fields import CannotPlan, Field
from cachelint.fix.functions.forward import Site
from cachelint.fix.functions.scope import Routine, Use
from cachelint.index.module import FunctionNode

if TYPE_CHECKING:
    from cachelint.fix.functions.assembly import Assembly


class Helpers:
    """The part of an assembly that deals with helpers."""

    def take_from_helper(self: Assembly, site: Site, helper: Routine, use: Use, reach: Sequence[Routine]) -> None:  # type: ignore[misc]
        """A helper that merely keeps one of its arguments: the argument is saved where the helper is called."""
        why = CannotPlan(
            f"{helper.name} writes it (line {use.node.lineno}), and {site.routine.name} saves",
            "written in a helper",
            use.field,
        )
        links = [(r, link) for r in self.family.routines for link in r.links if link.target is helper]
        if len(links) != 1 or links[0][0] is not site.routine or len(helper.of("store", use.field)) != 1:
            raise why
        call, flow = links[0][1].call, site.flow
        statement = helper.flow.statement(use.node)
        plain = isinstance(statement, ast.Assign) and len(statement.targets) == 1 and statement.targets[0] is use.node
        if not plain or site.routine.of("store", use.field) or helper.of("load", use.field):
            raise why
        assert isinstance(statement, ast.Assign)
        value = statement.value
        index = helper.flow.top(statement)
        surely = helper.flow.is_top(statement) and not any(helper.flow.top(r) < index for r in helper.flow.returns)
        if not surely or not isinstance(value, ast.Name) or value.id not in helper.flow.parameters:
            raise why
        outer = flow.statement(call)
        if value.id in helper.flow.bindings or not flow.is_top(outer) or flow.nested(call) or flow.in_loop(call):
            raise why
        argument = _argument(call, helper.node, value.id)
        if argument is None:
            raise why
        site.handed[use.field] = (call, argument, use)
        site.in_helper[use.field] = (statement, 0)

    def check_called_once(self: Assembly, main: Routine, helper: Routine, reach: Sequence[Routine]) -> None:  # type: ignore[misc]
        """A helper may save when forward surely calls it, once."""
        links = [(r, link) for r in reach for link in r.links if link.target is helper]
        caller, link = links[0]
        statement = caller.flow.statement(link.call)
        index = caller.flow.top(link.call)
        direct = len(links) == 1 and caller is main and caller.flow.is_top(statement)
        if not direct or caller.flow.in_loop(link.call) or any(main.flow.top(r) < index for r in main.flow.returns):
            raise CannotPlan(f"{helper.name} saves, and forward does not surely call it once", "written in a helper")

    def hand_on(  # type: ignore[misc]
        self: Assembly, main: Routine, helper: Routine, fields: Sequence[Field], reach: Sequence[Routine]
    ) -> None:
        """A helper of backward gets the values it reads as arguments. Raises CannotPlan where it can't."""
        names = [item.name for item in fields if helper.of("load", item.name)]
        first = names[0] if names else None

        def no(why: str) -> CannotPlan:
            return CannotPlan(f"{helper.name} reads it, and {why}", "read in a helper", first)

        if helper.of("saved"):
            raise no(f"both {main.name} and {helper.name} read what is saved")
        links = [(r, link) for r in self.family.routines for link in r.links if link.target is helper]
        if not links or any(r is not main for r, _ in links):
            raise no(f"{main.name} is not the only one to call it")
        word = re.compile(rf"\b{re.escape(helper.name)}\b")
        if len(word.findall(self.text.text)) != len(links) + 1:
            raise no("it may be called from elsewhere")
        mark = helper.name.encode()
        project = self.family.file.project
        for path in project.files:
            if path != helper.path and mark in project.raw(path):
                project.used.add(path)
                raise no("another file may call it")
        spec = helper.node.args
        if spec.vararg is not None or any(isinstance(a, ast.Starred) for _, link in links for a in link.call.args):
            raise no("it takes arguments of any number")
        for item in fields:
            if helper.of("store", item.name) or helper.of("delete", item.name):
                raise no("writes it as well")
        self.handed[id(helper)] = (helper, [link.call for _, link in links], names)

    def hand_down(self: Assembly, reader: Reader, locals_: dict[str, str]) -> None:  # type: ignore[misc]
        """Write the parameters and arguments for helpers of a reader."""
        for helper, calls, names in self.handed.values():
            if self.family.text is not self.text or not any(link.target is helper for link in reader.routine.links):
                continue
            taken: set[str] = set()
            optional = bool(helper.node.args.defaults)
            for name in names:
                parameter = helper.flow.fresh(name, taken)
                taken.add(parameter)
                code = f"{parameter}=None" if optional else parameter
                reader.edits.append(Extend(self.text.span(helper.node), (code,)))
                for use in helper.of("load", name):
                    reader.edits.append(Replace(self.text.span(use.node), parameter))
                for call in calls:
                    reader.edits.append(Extend(self.text.span(call), (f"{parameter}={locals_[name]}",)))
            for call in calls:
                reader.loads.append(call)

    def read_below(self: Assembly, reader: Reader, name: str) -> bool:  # type: ignore[misc]
        """Whether a helper of a reader reads a field."""
        return any(
            name in names and any(link.target is helper for link in reader.routine.links)
            for helper, _, names in self.handed.values()
        )


def _argument(call: ast.Call, node: FunctionNode, name: str) -> ast.expr | None:
    """What a call gives for a parameter of a plain function, None where that isn't written out."""
    if any(isinstance(arg, ast.Starred) for arg in call.args) or any(k.arg is None for k in call.keywords):
        return None
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    positional = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    place = positional.index(name) if name in positional else -1
    return call.args[place] if 0 <= place < len(call.args) else None
