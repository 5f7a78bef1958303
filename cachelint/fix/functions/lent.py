"""Helpers that read what is saved themselves: backward reads it once, takes its own part, and hands them the rest.

The helper gets one more parameter, ``saved_tensors=None``, and reads ``ctx.saved_tensors`` only where it is left out: for
every other caller nothing changes. That holds in another file, too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachelint.classify import relative
from cachelint.fix.edits import Before, Edit, Extend, Replace, Text
from cachelint.fix.functions.fields import CannotPlan
from cachelint.fix.functions.scope import BACKWARD, Link, Routine
from cachelint.index.lower import parse
from cachelint.index.project import Project
from cachelint.index.walk import walk

if TYPE_CHECKING:
    from cachelint.fix.functions.assembly import Assembly

_ATTRIBUTES = ("load", "store", "delete", "test")


def touches(routine: Routine, fields: Collection[str]) -> bool:
    """Whether a function does something with one of the fields."""
    return any(use.kind in _ATTRIBUTES and use.field in fields for use in routine.uses)


def reads_saved_only(routine: Routine, fields: Collection[str]) -> bool:
    """Whether a helper reads what is saved and leaves the fields alone."""
    odd = routine.of("save") or routine.of("escape") or touches(routine, fields)
    return not routine.main and bool(routine.of("saved")) and not odd


@dataclass(frozen=True)
class Lent:
    """A helper that is given the saved tensors: by this parameter, which it has already or is to get."""

    helper: Routine
    parameter: str
    ready: bool

    def edits(self, text: Text) -> Iterator[Edit]:
        """The changes of the helper, in the text of its file."""
        if self.ready:
            return
        yield Extend(text.span(self.helper.node), (f"{self.parameter}=None",))
        reads = [use.node for use in self.helper.of("saved")]
        first = _unconditional(self.helper, reads)
        if first is not None:
            read = text.source(reads[0])
            yield Before(text.span(first), (f"if {self.parameter} is None:\n    {self.parameter} = {read}",))
        for node in reads:
            own = text.source(node)
            code = self.parameter if first is not None else f"({own} if {self.parameter} is None else {self.parameter})"
            yield Replace(text.span(node), code)


def _unconditional(helper: Routine, reads: Sequence[ast.expr]) -> ast.stmt | None:
    """The statement of the body that makes the first read and surely makes it, None where it might not."""
    flow = helper.flow
    first = min(reads, key=lambda node: (node.lineno, node.col_offset))
    statement = flow.statement(first)
    simple = isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return))
    current: ast.AST = first
    while current is not statement:
        current = flow.parents[current]
        if isinstance(current, (ast.IfExp, ast.BoolOp, ast.comprehension, ast.Lambda)) or flow.in_loop(current):
            return None
    return statement if simple and flow.is_top(statement) else None


def lent(helper: Routine, project: Project) -> Lent:
    """The helper with the parameter. Raises CannotPlan where it can't have one that other callers do not notice."""

    def no(why: str) -> CannotPlan:
        return CannotPlan(
            f"`{helper.name}` ({relative(helper.path)}) reads what is saved, and {why}",
            "read in a helper",
        )

    spec, flow = helper.node.args, helper.flow
    if helper.owner is not None:
        raise no("it is a method, which a subclass may have in another form")
    if helper.roles != {BACKWARD}:
        raise no("not only backward calls it")
    if spec.vararg is not None or spec.kwarg is not None:
        raise no("it takes arguments of any number")
    if any(use.nested for use in helper.of("saved")):
        raise no("does so in a nested function")
    _check_its_own(helper, project, no)
    known = {_parameter(helper, use.node) for use in helper.of("saved")}
    if len(known) == 1 and None not in known:
        return Lent(helper, str(known.pop()), True)
    return Lent(helper, flow.fresh("saved_tensors"), False)


def _check_its_own(helper: Routine, project: Project, no: Callable[[str], CannotPlan]) -> None:
    """Raise CannotPlan where the name may mean another function at run time."""
    word = re.escape(helper.name).encode()
    bound = re.compile(
        rb"\b" + word + rb"\s*=(?!=)|(?:setattr|patch(?:\.object)?)\s*\([^()]*[\"'][\w.]*\b" + word + rb"[\"']"
    )
    defined = re.compile(rb"^[ \t]*(?:async\s+)?(?:def|class)\s+" + word + rb"\b", re.MULTILINE)
    for path in project.mentioning(helper.name.encode()):
        data = project.raw(path)
        places = [match.start() for match in bound.finditer(data)]
        makers = [match.start() for match in defined.finditer(data)]
        places += makers[1:] if path == helper.path else makers
        lines = [data.count(bytes([10]), 0, place) + 1 for place in places] or _bound_again(helper, project, path)
        if lines:
            project.used.add(path)
            raise no(f"its name may mean something else ({relative(path)}:{min(lines)})")


def _bound_again(helper: Routine, project: Project, path: str) -> list[int]:
    """The lines of a file that give the helper's name to something else: a loop, ``global``, another import."""
    module = project.module(path)
    if module is None:
        return [1]
    try:
        nodes = list(walk(parse(module.text, path)))
    except SyntaxError as error:
        return [error.lineno or 1]
    name = helper.name
    lines = [n.lineno for n in nodes if isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)]
    lines += [n.lineno for n in nodes if isinstance(n, ast.Global) and name in n.names]
    imports = [n for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom))]
    imported = [n.lineno for n in imports if any((alias.asname or alias.name) == name for alias in n.names)]
    if path == helper.path or len(module.lookup(name)) > 1:
        lines += imported
    return lines


def _parameter(helper: Routine, node: ast.expr) -> str | None:
    """The parameter that a read of what is saved gives way to: ``if given is None: given = ctx.saved_tensors``, or
    ``ctx.saved_tensors if given is None else given``."""
    flow = helper.flow
    parent = flow.parents.get(node)
    name = ""
    if isinstance(parent, ast.IfExp) and parent.body is node and isinstance(parent.orelse, ast.Name):
        name = parent.orelse.id if _asks(parent.test, parent.orelse.id) else ""
        bound: list[ast.AST] = []
    elif isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        around = flow.parents.get(parent)
        bound = [parent.targets[0]]
        if isinstance(around, ast.If) and around.body == [parent] and not around.orelse and flow.is_top(around):
            name = parent.targets[0].id if _asks(around.test, parent.targets[0].id) else ""
    if not name or flow.bindings.get(name, []) != bound:
        return None
    spec = helper.node.args
    defaults = dict(zip([a.arg for a in spec.args][::-1], spec.defaults[::-1], strict=False))
    defaults |= {a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
    default = defaults.get(name)
    return name if isinstance(default, ast.Constant) and default.value is None else None


def _asks(test: ast.expr, name: str) -> bool:
    """Whether a test is ``name is None``."""
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == name
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Is)
        and isinstance(test.comparators[0], ast.Constant)
        and test.comparators[0].value is None
    )


class Lending:
    """The part of an assembly that hands saved tensors to helpers."""

    def lend(self: Assembly, main: Routine, helper: Routine, reach: Sequence[Routine]) -> None:  # type: ignore[misc]
        """Have a helper of one backward given what it reads. Raises CannotPlan where it can't be."""
        found = lent(helper, self.family.file.project)

        def no(why: str) -> CannotPlan:
            return CannotPlan(f"`{helper.name}` reads what is saved, and {why}", "read in a helper")

        if self.read.endswith("()"):
            raise no("only PyTorch's ctx is known to give all of it as one tuple")
        links = [(r, link) for r in reach for link in r.links if link.target is helper]
        for caller, link in links:
            if caller is not main:
                raise no(f"{caller.name} calls it, not {main.name} itself")
            if main.flow.nested(link.call):
                raise no(f"{main.name} calls it in a nested function")
            if not self.sure_of(link.call):
                raise no("the name that it is called by may mean something else")
            if not _is_plain(link, found.parameter):
                raise no(f"it is given arguments of any number (line {link.call.lineno})")
        known = self.lent.setdefault(id(main), [])
        known += [(link.call, found) for _, link in links if all(call is not link.call for call, _ in known)]

    def lent_words(self: Assembly) -> list[str]:  # type: ignore[misc]
        """What is said of the helpers."""
        own = self.family.file.module.path
        helpers = {found.helper for calls in self.lent.values() for _, found in calls}
        return sorted(
            f"hand `{h.name}` what is saved" + ("" if h.path == own else f" ({relative(h.path)})") for h in helpers
        )

    def sure_of(self: Assembly, call: ast.Call) -> bool:  # type: ignore[misc]
        """Whether one statement of the module binds the name that is called: no fallback for a failing import."""
        return isinstance(call.func, ast.Name) and len(self.family.file.module.lookup(call.func.id)) == 1

    def lent_edits(self: Assembly) -> tuple[list[Edit], dict[str, list[Edit]]]:  # type: ignore[misc]
        """The changes of the helpers: those in this file, and those in others by path."""
        own: list[Edit] = []
        others: dict[str, list[Edit]] = {}
        helpers = {id(found.helper): found for calls in self.lent.values() for _, found in calls}
        for found in helpers.values():
            path = found.helper.path
            if path == self.family.file.module.path:
                own += found.edits(self.text)
            elif not found.ready:
                module = self.family.file.project.module(path)
                assert module is not None
                others.setdefault(path, []).extend(found.edits(Text(module.text)))
        return own, others


def _is_plain(link: Link, parameter: str) -> bool:
    """Whether a call gives each of its arguments by itself, and not that of the parameter."""
    call = link.call
    starred = any(isinstance(arg, ast.Starred) for arg in call.args)
    return not starred and all(keyword.arg not in (None, parameter) for keyword in call.keywords)
