"""Where an operator was called from: the lines of user code on the Python stack, and the names that they assign.

Frames of PyTorch and of this package's own machinery are left out; the layers are user code.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
from dataclasses import dataclass
from types import FrameType

import torch

DEPTH = 16
"""How many user frames of one call are kept, innermost first."""

_TORCH = os.path.dirname(torch.__file__) + os.sep
_HERE = os.path.dirname(os.path.abspath(__file__))
_RUNNERS = frozenset({"measure.py", "subject.py", "verify.py"})
_ENGINE = "_engine_run_backward"
_CLI = os.path.join(os.path.dirname(_HERE), "cli")
_GLUE = frozenset(os.path.join(os.path.dirname(functools.__file__), name) for name in ("contextlib.py", "functools.py"))


@dataclass(frozen=True, slots=True)
class Line:
    """One line of user code. ``function`` is the qualified name of the function that it is in."""

    path: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """The source of the line, stripped; empty if it can't be read."""
        return linecache.getline(self.path, self.line).strip()

    def __str__(self) -> str:
        """``path:line``, the path relative to the working directory where that is shorter."""
        return f"{short(self.path)}:{self.line}"


@dataclass(frozen=True, slots=True)
class Site:
    """An operator call: ``op`` as the dispatcher names it, ``stack`` the user frames, innermost first.

    ``node`` is the autograd node that called it, empty outside backward. ``forward`` is the line of forward that made
    the node, where it is known and no user code stands between the engine and the operator.
    """

    op: str
    stack: tuple[Line, ...] = ()
    node: str = ""
    forward: Line | None = None

    @property
    def line(self) -> Line | None:
        """The line of user code that speaks for the operator.

        In backward that is the line of forward whose derivative this is; a hand-written backward is itself user code
        and speaks for itself.
        """
        return self.forward or (self.stack[0] if self.stack else None)

    @property
    def owner(self) -> str:
        """The name that the result is assigned to, looked for outwards through helpers that return it; may be empty."""
        if self.forward is not None:
            return ""
        for line in self.stack:
            names, returned = assigned_names(line.path, line.line)
            if names or not returned:
                return ", ".join(names)
        return ""

    def __str__(self) -> str:
        """``op at path:line``, with the autograd node in backward."""
        where = str(self.line) if self.line is not None else "no Python line"
        return f"{self.op} at {where}" + (f" (backward, {self.node})" if self.node else "")


def short(path: str) -> str:
    """``path`` relative to the working directory if it lies below it, with forward slashes."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return (path if relative.startswith("..") else relative).replace(os.sep, "/")


@functools.cache
def is_boundary(path: str) -> bool:
    """Whether this file runs code under test: what called it is of no interest to a reader."""
    folder, name = os.path.split(os.path.abspath(path))
    return folder == _HERE and name in _RUNNERS


@functools.cache
def is_user(path: str) -> bool:
    """Whether code of this file is the user's, and not PyTorch's or the machinery's."""
    if path.startswith((_TORCH, "<frozen ")) or path in _GLUE:
        return False
    return path.startswith("<") or os.path.dirname(os.path.abspath(path)) not in (_HERE, _CLI)


def frames(start: FrameType) -> tuple[list[FrameType], int]:
    """The user frames from ``start`` outwards, at most ``DEPTH``, and how many of them the autograd engine called.

    Inside a hand-written backward or a hook the second is more than 0; while the engine runs an operator's own
    derivative it is 0.
    """
    found: list[FrameType] = []
    called: int | None = None
    frame: FrameType | None = start
    while frame is not None and len(found) < DEPTH:
        code = frame.f_code
        if is_boundary(code.co_filename):
            break
        if is_user(code.co_filename):
            found.append(frame)
        elif called is None and code.co_name == _ENGINE and code.co_filename.startswith(_TORCH):
            called = len(found)
        frame = frame.f_back
    return found, len(found) if called is None else called


def lines(found: list[FrameType]) -> tuple[Line, ...]:
    """The lines at which ``found`` stand."""
    return tuple(
        _line(code.co_filename, frame.f_lineno, code.co_qualname) for frame in found for code in [frame.f_code]
    )


def here(op: str) -> Site:
    """The site of an operator that is being called, without what a meter knows of forward."""
    found, _ = frames(sys._getframe(1))
    return Site(op, lines(found))


@functools.lru_cache(maxsize=65536)
def _line(path: str, line: int, function: str) -> Line:
    # Not keyed by the code object: two of different files are equal if their instructions are.
    return Line(path, line, function)


@functools.lru_cache(maxsize=256)
def _statements(path: str, source: str) -> tuple[tuple[int, int, tuple[str, ...], bool], ...]:
    """(first line, last line, assigned names, is a return) of every statement, inner ones after outer ones."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            found.append((node.lineno, node.end_lineno or node.lineno, _targets(node), isinstance(node, ast.Return)))
    return tuple(found)


def _targets(node: ast.stmt) -> tuple[str, ...]:
    if isinstance(node, ast.Assign):
        targets: list[ast.expr] = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    else:
        return ()
    flat: list[str] = []
    for target in targets:
        inner = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        flat += [ast.unparse(each) for each in inner]
    return tuple(flat)


def assigned_names(path: str, line: int) -> tuple[tuple[str, ...], bool]:
    """What the statement at this line assigns to, and whether it is a ``return``."""
    source = "".join(linecache.getlines(path))
    covering = [entry for entry in _statements(path, source) if entry[0] <= line <= entry[1]]
    if not covering:
        return (), False
    _, _, names, returned = min(covering, key=lambda entry: (entry[1] - entry[0], -entry[0]))
    return names, returned
