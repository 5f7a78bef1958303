"""Every node below a node, as ``ast.walk`` gives them, in a third of the time: walking is what the checks do most.

Which fields of a node hold nodes is looked up by the node's type instead of asked of every value. Load, Store and Del,
operators, and what else has no name or place of its own are left out: their parents say all that they do.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

_PLAIN: Final = frozenset(
    "id ctx attr arg name names asname level module kind conversion simple type_comment is_async op ops rest kwd_attrs "
    "type_ignores tag str".split()
)
"""Fields that hold no node, or only one that is left out."""

_LISTS: Final = frozenset(
    "body orelse finalbody handlers decorator_list bases keywords args elts values keys targets items generators ifs "
    "comparators posonlyargs kwonlyargs kw_defaults defaults cases patterns kwd_patterns names type_params".split()
)
"""Fields that hold a list of nodes, but for those of the types in ``_SPECIAL``."""

_SPECIAL: Final[dict[str, tuple[tuple[str, bool], ...]]] = {
    "Constant": (),
    "MatchSingleton": (),
    "Import": (("names", True),),
    "ImportFrom": (("names", True),),
    "TypeAlias": (("name", False), ("type_params", True), ("value", False)),
    "Lambda": (("args", False), ("body", False)),
    "IfExp": (("test", False), ("body", False), ("orelse", False)),
    "Expression": (("body", False),),
    "FunctionDef": (
        ("args", False),
        ("body", True),
        ("decorator_list", True),
        ("returns", False),
        ("type_params", True),
    ),
}
_SPECIAL["AsyncFunctionDef"] = _SPECIAL["FunctionDef"]


def _fields(kind: type[ast.AST]) -> tuple[tuple[str, bool], ...]:
    """The fields of a type of node that hold nodes, in order, each with whether it holds a list of them."""
    special = _SPECIAL.get(kind.__name__)
    if special is not None:
        return special
    return tuple((name, name in _LISTS) for name in kind._fields if name not in _PLAIN)


_CHILDREN: Final[dict[type[ast.AST], tuple[tuple[str, bool], ...]]] = {}


def walk(node: ast.AST) -> Sequence[ast.AST]:
    """``node`` and all nodes below it, breadth first. Those of a function are kept with it: many ask for them."""
    whole = type(node) in _FUNCTIONS
    if whole and _BELOW in node.__dict__:
        kept: list[ast.AST] = node.__dict__[_BELOW]
        return kept
    found = [node]
    known = _CHILDREN
    for here in found:
        fields = known.get(type(here))
        if fields is None:
            fields = known[type(here)] = _fields(type(here))
        for name, many in fields:
            below = getattr(here, name, None)
            if below is None:
                continue
            if many:
                found += below if name not in _GAPS else [item for item in below if item is not None]
            else:
                found.append(below)
    if whole:
        node.__dict__[_BELOW] = found
    return found


_FUNCTIONS: Final = frozenset((ast.FunctionDef, ast.AsyncFunctionDef))
_BELOW: Final = "_below"
_GAPS: Final = frozenset(("keys", "kw_defaults"))
"""Lists in which None stands for something: what ``**`` brings, an argument without a default."""


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below a node, in order."""
    fields = _CHILDREN.get(type(node))
    if fields is None:
        fields = _CHILDREN[type(node)] = _fields(type(node))
    found: list[ast.AST] = []
    for name, many in fields:
        if many:
            found += [item for item in getattr(node, name, ()) if item is not None]
        else:
            below = getattr(node, name, None)
            if below is not None:
                found.append(below)
    return found


def parents(scope: ast.AST) -> dict[ast.AST, ast.AST]:
    """The parent of every node below ``scope``."""
    found: dict[ast.AST, ast.AST] = {}
    todo = [scope]
    for parent in todo:
        below = children(parent)
        for child in below:
            found[child] = parent
        todo += below
    return found


def blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of statements right inside a statement: its arms, what it catches, its cases."""
    found: list[list[ast.stmt]] = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    found += [handler.body for handler in getattr(statement, "handlers", ())]
    found += [case.body for case in getattr(statement, "cases", ())]
    return [block for block in found if block]


def within(node: ast.AST, outer: ast.AST | None) -> bool:
    """Whether a node is ``outer`` or lies below it."""
    return outer is not None and any(item is node for item in walk(outer))


def last_name(node: ast.AST) -> str:
    """The last part of a name or dotted name, empty for any other expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def code_of(node: ast.AST) -> str:
    """The code of a node, as ``ast.unparse`` writes it. Most are names and dotted names, which need no visitor."""
    tail = ""
    here = node
    while isinstance(here, ast.Attribute):
        tail = f".{here.attr}{tail}"
        here = here.value
    if isinstance(here, ast.Name):
        return here.id + tail
    if isinstance(node, ast.Constant) and type(node.value) in _PLAIN_VALUES:
        return repr(node.value)
    return ast.unparse(node)


_PLAIN_VALUES: Final = frozenset((bool, int, type(None)))
