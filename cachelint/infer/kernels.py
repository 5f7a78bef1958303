"""Which parameters a kernel of the project writes through."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from cachelint.index.module import FunctionNode
from cachelint.index.walk import children, last_name, walk
from cachelint.infer.values import Func

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_STORE: Final = re.compile(r"(?:store|atomic_\w+)\(")
_WORD_BEFORE: Final = re.compile(r"([A-Za-z_]\w*)\s*\.\s*\Z")
_ASSIGNS: Final = re.compile(r"[ \t]*(?::[^=\n]*)?[-+*/]?=(?!=)")
_FAR: Final = 160
"""Characters after an assignment in which its pointer stands; the base comes first in every form that we follow."""
_STORES: Final = frozenset(
    ("store", "atomic_add", "atomic_max", "atomic_min", "atomic_xchg", "atomic_cas", "atomic_and")
)
_MODULES: Final = frozenset(("tl", "language", "gl", "ttgl"))


def written_parameters(kernel: Func, wanted: Iterable[str]) -> frozenset[str]:
    """Those of the ``wanted`` parameters through which a kernel stores, found by following pointers back from stores."""
    if isinstance(kernel.node, ast.Lambda):
        return frozenset()
    text = kernel.module.unparsed(kernel.node)
    if text and not _near_stores(text) & set(wanted):
        return frozenset()
    known = kernel.module.stored_through
    if id(kernel.node) not in known:
        try:
            known[id(kernel.node)] = _written(kernel.module.whole(kernel.node))
        except SyntaxError:
            return frozenset()
    return known[id(kernel.node)] & frozenset(wanted)


def _written(node: FunctionNode) -> frozenset[str]:
    """All parameters through which a kernel stores."""
    parameters = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    stored: set[str] = set()
    _follow(node.body, {a.arg: frozenset((a.arg,)) for a in parameters}, stored)
    return frozenset(stored)


_Bases = dict[str, frozenset[str]]
"""Which parameters each name may point into at one place."""


def _follow(body: Iterable[ast.stmt], bases: _Bases, stored: set[str]) -> None:
    """Go through statements in order: ``bases`` is brought up to date, ``stored`` gets what is stored through.

    A name that is bound anew points into the new base only: block pointers are often all called alike.
    """
    for statement in body:
        blocks = _blocks(statement)
        for part in _heads(statement) if blocks else (statement,):
            for item in walk(part):
                if isinstance(item, ast.Call) and last_name(item.func) in _STORES:
                    stored |= _into(_stored_to(item), bases)
        if isinstance(statement, (ast.For, ast.While)):
            before: _Bases = {}
            while before != bases:
                before = dict(bases)
                _follow(statement.body, bases, stored)
                _join(bases, before)
            _follow(statement.orelse, bases, stored)
        elif blocks:
            ends = []
            for block in blocks:
                ends.append(dict(bases))
                _follow(block, ends[-1], stored)
            bases.clear()
            _join(bases, *ends)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            # `p += offset` moves a pointer: it points into what it pointed into before.
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                if isinstance(target, ast.Name):
                    bases[target.id] = _into(_pointer(statement.value), bases)


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a compound statement of which one runs, an absent ``else`` as an empty one."""
    if isinstance(statement, (ast.If, ast.For, ast.While)):
        return [statement.body, statement.orelse]
    if isinstance(statement, ast.With):
        return [statement.body]
    if isinstance(statement, ast.Match):
        return [*(case.body for case in statement.cases), []]
    return []


def _heads(statement: ast.stmt) -> Iterator[ast.expr]:
    """What a compound statement evaluates before its blocks: ``while tl.atomic_cas(lock, 0, 1):`` stores."""
    for child in children(statement):
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.withitem):
            yield child.context_expr


def _join(bases: _Bases, *others: _Bases) -> None:
    """Add to each name what it may point into after another way."""
    for other in others:
        for name, found in other.items():
            bases[name] = bases.get(name, frozenset()) | found


def _into(names: set[str], bases: _Bases) -> frozenset[str]:
    return frozenset().union(*(bases.get(name, frozenset()) for name in names))


@lru_cache(maxsize=256)
def _near_stores(text: str) -> frozenset[str]:
    """Every name that may stand behind a stored-to pointer, by the text alone: far quicker than parsing the kernel."""
    names: set[str] = set()
    for word in ("store(", "atomic_"):
        for at in _occurrences(text, word):
            stored = _STORE.match(text, at)
            if stored:  # ``tl.store(pointer, …)`` or ``descriptor.store(…)``
                names.update(_NAME.findall(_argument(text, stored.end())))
                owner = _WORD_BEFORE.search(text, max(0, at - 80), at)
                if owner:
                    names.add(owner[1])
    pending = list(names)
    while pending:
        name = pending.pop()
        for at in _occurrences(text, name):
            assigned = _ASSIGNS.match(text, at + len(name))
            if assigned and not (text[at - 1 : at].isalnum() or text[at - 1 : at] == "_"):
                for found in _NAME.findall(_statement(text, assigned.end())):
                    if found not in names:
                        names.add(found)
                        pending.append(found)
    return frozenset(names)


def _argument(text: str, start: int) -> str:
    """The text of a call's first argument, from behind the opening bracket."""
    depth = 0
    for position in range(start, min(len(text), start + _FAR)):
        char = text[position]
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth < 0:
                return text[start:position]
        elif char == "," and depth == 0:
            return text[start:position]
    return text[start : start + _FAR]


def _statement(text: str, start: int) -> str:
    """The text behind an assignment to the end of its line, or of the line that closes its last bracket."""
    end = start
    while end < start + _FAR:
        end = text.find("\n", end + 1)
        if end < 0:
            return text[start : start + _FAR]
        piece = text[start:end]
        if sum(map(piece.count, "([{")) <= sum(map(piece.count, ")]}")) and not piece.endswith("\\"):
            return piece
    return text[start : start + _FAR]


def _occurrences(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word))


def _stored_to(call: ast.Call) -> set[str]:
    """``tl.store(pointer, …)``, or ``descriptor.store(…)``."""
    func = call.func
    if isinstance(func, ast.Attribute) and last_name(func.value) not in _MODULES:
        return _pointer(func.value)
    return _pointer(call.args[0]) if call.args else set()


def _pointer(node: ast.expr) -> set[str]:
    """The names that a pointer expression starts from: the left end of sums, the base of a block pointer."""
    while True:
        if isinstance(node, ast.BinOp):
            node = node.left
        elif isinstance(node, ast.Call) and last_name(node.func) in (
            "make_block_ptr",
            "make_tensor_descriptor",
            "advance",
        ):
            base = next((k.value for k in node.keywords if k.arg == "base"), node.args[0] if node.args else None)
            if base is None:
                return set()
            node = base
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            node = node.func.value
        elif isinstance(node, ast.IfExp):
            return _pointer(node.body) | _pointer(node.orelse)
        elif isinstance(node, ast.Name):
            return {node.id}
        else:
            return set()
