"""Parse any Python 3 source, also syntax newer than the Python that runs the linter.

The standard library's parser is tried first. What it refuses is read by libcst, whose grammar is newer, rewritten
line for line to the older syntax with the same names and values, and parsed again.
"""

from __future__ import annotations

import ast
import symtable
import warnings


def parse(text: str, path: str) -> ast.Module:
    """The tree of ``text``. Raises SyntaxError (with a line) when no grammar accepts it.

    RecursionError and MemoryError, which deep nesting causes, are turned into SyntaxError as well.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in linted code are not the user's business here
            return compile(text, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except (RecursionError, MemoryError) as error:
        raise SyntaxError("nested too deeply to parse", (path, 1, 1, "")) from error
    except ValueError as error:
        raise SyntaxError(str(error), (path, 1, 1, "")) from error
    except SyntaxError as error:
        lowered = _lowered(text)
        if lowered is None:
            raise
        try:
            return compile(lowered, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
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


def _lowered(text: str) -> str | None:
    try:
        from cachelint.index.downgrade import downgrade

        return downgrade(text)
    except Exception:  # libcst raises many kinds on bad input; the first error is the one to show
        return None
