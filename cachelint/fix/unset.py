"""Fields that a new text still reads and no longer sets: a fix that leaves one behind has broken the program.

Two readings are made, since each sees what the other does not: the events of the interpretation, which follow the
receiver through helpers and base classes, and the bare syntax, which also knows code that is never interpreted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from cachelint.checks import FileContext
from cachelint.collect.log import Write
from cachelint.index.module import ModuleInfo
from cachelint.index.walk import children, last_name, walk
from cachelint.infer.values import NONE

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def left_unset(before: FileContext, after: FileContext) -> str:
    """What is wrong with the new text, empty when every field that it reads is set as it was before."""
    return _by_events(before, after) or _by_syntax(before.module, after.module)


def _told(name: str, line: int) -> str:
    return f"backward would still read `{name}` (line {line} of the fixed text), which nothing sets any more"


# -- events ------------------------------------------------------------------------------------------------------------


def _by_events(before: FileContext, after: FileContext) -> str:
    was = {context.report.type: _written(context.analysis.log.writes) for context in before.types}
    for context in after.types:
        log = context.analysis.log
        # What the constructor makes (a keeper of the value, say) is there for good.
        made = {name for name, value in log.initial.items() if value.kinds != NONE}
        lost = was.get(context.report.type, set()) - _written(log.writes) - made
        for read in log.reads:
            if read.phase == "backward" and read.field in lost:
                if any(w.field == read.field and w.phase == "backward" and w.order < read.order for w in log.writes):
                    continue
                return _told(read.field, getattr(read.node, "lineno", 0))
    return ""


def _written(writes: list[Write]) -> set[str]:
    return {write.field for write in writes if write.phase == "forward"}


# -- syntax ------------------------------------------------------------------------------------------------------------


@dataclass
class _Uses:
    """What the functions of one class do with the attributes of their receiver. To clear one is not to set it."""

    bases: frozenset[str] = frozenset()
    stored: set[str] = field(default_factory=set)
    loaded: dict[str, int] = field(default_factory=dict)
    helpers: set[str] = field(default_factory=set)
    """The functions that are given the receiver."""

    def read(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Add the uses of one function, whose first parameter is the receiver."""
        every = [*function.args.posonlyargs, *function.args.args]
        receiver = every[0].arg if every else ""
        cleared = {
            id(target)
            for node in walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is None
            for target in node.targets
        }
        for node in walk(function):
            name, kind = _attribute(node, receiver)
            if kind == "store":
                self.stored |= set() if id(node) in cleared else {name}
            elif kind == "load":
                self.loaded.setdefault(name, getattr(node, "lineno", 0))
            elif isinstance(node, ast.Call) and any(
                isinstance(a, ast.Name) and a.id == receiver for a in node.args[:1]
            ):
                self.helpers.add(last_name(node.func))


def _by_syntax(before: ModuleInfo, after: ModuleInfo) -> str:
    known = {chunk.text for chunk in before.chunks}
    kept = {chunk.text for chunk in after.chunks}
    old = dict(_classes(before, kept))
    for name, uses in _classes(after, known):
        lost = old[name].stored - uses.stored if name in old else set()
        for attribute in sorted(lost - _inherited(after, uses) if lost else lost):
            line = uses.loaded.get(attribute) or _read_around(after, name, uses, attribute)
            if line:
                return _told(attribute, line)
    return ""


def _inherited(module: ModuleInfo, uses: _Uses, seen: frozenset[str] = frozenset()) -> set[str]:
    """What the bases of a class, those of the same file, set."""
    found: set[str] = set()
    for chunk in module.chunks:
        if chunk.kind == "class" and chunk.name in uses.bases - seen:
            for statement in module.statements(chunk):
                if isinstance(statement, ast.ClassDef):
                    base = _uses(statement)
                    found |= base.stored | _inherited(module, base, seen | {chunk.name})
    return found


def _classes(module: ModuleInfo, same: set[str]) -> Iterator[tuple[str, _Uses]]:
    """The classes of those top-level statements that are not ``same``."""
    for chunk in module.chunks:
        if chunk.text not in same:
            for statement in module.statements(chunk):
                yield from _below(statement, "")


def _below(node: ast.AST, prefix: str) -> Iterator[tuple[str, _Uses]]:
    """Every class in a statement, by its qualified name."""
    if isinstance(node, ast.ClassDef):
        yield f"{prefix}{node.name}", _uses(node)
    inner = f"{prefix}{node.name}." if isinstance(node, (ast.ClassDef, *_FUNCTION)) else prefix
    for child in children(node):
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from _below(child, inner)


def _uses(node: ast.ClassDef) -> _Uses:
    uses = _Uses(frozenset(map(last_name, node.bases)))
    for member in node.body:  # what the class itself binds is there, whatever its functions set
        if isinstance(member, (ast.Assign, ast.AnnAssign)) and member.value is not None:
            targets = member.targets if isinstance(member, ast.Assign) else [member.target]
            uses.stored |= {target.id for target in targets if isinstance(target, ast.Name)}
    left = [member for member in node.body if isinstance(member, _FUNCTION)]
    while True:
        ready = [f for f in left if f.name in _MAINS or not _is_static(f) or f.name in uses.helpers]
        if not ready:
            return uses
        left = [function for function in left if function not in ready]
        for function in ready:
            uses.read(function)


_MAINS = frozenset(("forward", "setup_context", "backward", "vjp", "jvp"))


def _is_static(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)


def _attribute(node: ast.AST, receiver: str) -> tuple[str, str]:
    """The attribute of the receiver that a node sets or reads, and which of the two."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == receiver:
        return node.attr, "store" if isinstance(node.ctx, ast.Store) else "load"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
        first, second = node.args[:2]
        literal = second.value if isinstance(second, ast.Constant) and isinstance(second.value, str) else ""
        if literal and isinstance(first, ast.Name) and first.id == receiver:
            kinds = {"setattr": "store", "getattr": "load" if len(node.args) == 2 else ""}
            return literal, kinds.get(node.func.id, "")
    return "", ""


def _read_around(module: ModuleInfo, owner: str, own: _Uses, name: str) -> int:
    """The line where a helper of the class, a subclass or a base of it reads a field; 0 where none does."""
    short = owner.rpartition(".")[2]
    for chunk in module.chunks:
        if name not in chunk.text:
            continue
        for statement in module.statements(chunk):
            found: list[_Uses] = []
            if isinstance(statement, _FUNCTION) and statement.name in own.helpers:
                found.append(_Uses())
                found[0].read(statement)
            for other, uses in _below(statement, ""):
                if other != owner and (short in uses.bases or other.rpartition(".")[2] in own.bases):
                    found.append(uses)
            for uses in found:
                if name in uses.loaded and name not in uses.stored:
                    return uses.loaded[name]
    return 0
