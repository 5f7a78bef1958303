"""Parse any Python 3 source, also syntax newer than the Python that runs the linter.

The standard library's parser is tried first. What it refuses is read by libcst, whose grammar is newer, rewritten
line for line to the older syntax with the same names and values, and parsed again.
"""

from __future__ import annotations

import ast
import re
import symtable
import warnings
from typing import Final, cast


def tree(text: str, path: str) -> ast.Module:
    """The standard library's own parse. Raises SyntaxError, ValueError, RecursionError or MemoryError."""
    return cast(ast.Module, compile(text, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True))


def parse(text: str, path: str) -> ast.Module:
    """The tree of ``text``. Raises SyntaxError (with a line) when no grammar accepts it.

    RecursionError and MemoryError, which deep nesting causes, are turned into SyntaxError as well.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in linted code are not the user's business here
            return tree(text, path)
    except (RecursionError, MemoryError) as error:
        raise SyntaxError("nested too deeply to parse", (path, 1, 1, "")) from error
    except ValueError as error:
        raise SyntaxError(str(error), (path, 1, 1, "")) from error
    except SyntaxError as error:
        lowered = _lowered(text)
        if lowered is None:
            raise
        try:
            return tree(lowered, path)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise error from None


def check(text: str, path: str) -> None:
    """Whether ``text`` is Python, at three quarters of the cost of a tree. Raises SyntaxError as :func:`parse` does."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            symtable.symtable(text, path, "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        parse(text, path)


_NEWER: Final = re.compile(
    r"""(?x) ^[ \t]*except\b[^:(]*,  |  ^[ \t]*type[ \t]+\w+  |  \b(?:def|class)[ \t]+\w+[ \t]*\[
    |  \b(?:[rR]?[tTfF]|[tTfF][rR])["']""",
    re.MULTILINE,
)
_MAX_DEPTH: Final = 60
_MAX_LINE: Final = 10_000


def shallow(text: str) -> bool:
    """Whether libcst can be given a text: its parser overflows the stack, and ends the process, on deep nesting."""
    depth = 0
    for match in re.finditer(r"[()\[\]{}]", text):
        depth += 1 if match[0] in "([{" else -1
        if depth > _MAX_DEPTH:
            return False
        depth = max(depth, 0)
    return all(len(line) < _MAX_LINE and len(line) - len(line.lstrip()) < 8 * _MAX_DEPTH for line in text.splitlines())


def _lowered(text: str) -> str | None:
    if not _NEWER.search(text) or not shallow(text):
        return None
    try:
        from cachelint.index.downgrade import downgrade

        return downgrade(text)
    except Exception:  # libcst raises many kinds on bad input; the first error is the one to show
        return None
