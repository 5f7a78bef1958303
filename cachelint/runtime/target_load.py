"""Importing what a command names, from a dotted name or the path of a file, and once more with some sources rewritten.

Importing runs the module's code.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType

from cachelint.runtime.sites import short
from cachelint.runtime.target import Target, TargetError, describe

_INSTALLED = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib"))

REWRITTEN = " (fixed)"
"""Ends the file name of code that was compiled from a rewritten source."""


def load(text: str, rewritten: Mapping[str, str] | None = None, again: frozenset[str] = frozenset()) -> Target:
    """Import ``MODULE:NAME``, or ``MODULE`` with an example function.

    ``rewritten`` maps absolute paths of files to the source that is run in their place; ``again`` names the modules that
    are imported anew for that (those that a first load brought in). ``sys.modules`` is then as before.

    Raises:
        TargetError: there is no such module or name, or importing it raised.
    """
    head, name = _split(text)
    before = set(sys.modules)
    if rewritten is None:
        module = _imported(head, {})
        imported = frozenset(name for name in set(sys.modules) - before if _own(sys.modules[name]))
    else:
        with _forgotten(again, rewritten):
            module = _imported(head, rewritten)
            imported = again
    target = Target(text, module, name, imported)
    try:
        target.value  # noqa: B018
    except AttributeError as error:
        own = sorted(n for n, v in vars(module).items() if callable(v) and v.__module__ == module.__name__)
        hint = f"it has {', '.join(own)}" if own else "it defines no function and no class"
        raise TargetError(f"{short(head)}: there is no {name!r}; {hint}") from error
    return target


def _own(module: ModuleType) -> bool:
    """Whether a module is the project's: a source file that is neither installed nor the standard library's."""
    path = getattr(module, "__file__", None) or ""
    return path.endswith(".py") and not path.startswith(_INSTALLED) and "site-packages" not in path


def _split(text: str) -> tuple[str, str]:
    """The module and the name; a colon after a single letter is that of a drive."""
    head, colon, name = text.rpartition(":")
    if not colon or len(head) <= 1 or name.endswith(".py") or any(mark in name for mark in "/\\"):
        return text, ""
    return head, name


def _imported(head: str, rewritten: Mapping[str, str]) -> ModuleType:
    is_path = head.endswith(".py") or "/" in head or os.sep in head
    if is_path and not os.path.isfile(head):
        raise TargetError(f"{short(head)}: there is no such file")
    path = Path(head).resolve() if is_path else None
    folder, dotted = _dotted(path) if path is not None else (Path.cwd(), head)
    try:
        with _importable(folder, Path.cwd()), _rewriting(rewritten):
            if path is not None and not dotted:
                return _run_file(path, rewritten)
            return importlib.import_module(dotted)
    except ModuleNotFoundError as error:
        if error.name and f"{dotted}.".startswith(f"{error.name}."):
            raise TargetError(f"{head}: there is no module {error.name!r}") from error
        raise TargetError(f"{short(head)}: importing it raised {describe(error)}") from error
    except (Exception, SystemExit) as error:  # whatever importing runs into
        raise TargetError(f"{short(head)}: importing it raised {describe(error)}") from error


def _dotted(path: Path) -> tuple[Path, str]:
    """The folder to import from, and the dotted name of the module at ``path``; empty if it lies in no package."""
    parts = [] if path.name == "__init__.py" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts) if folder != path.parent else ""


def _run_file(path: Path, rewritten: Mapping[str, str]) -> ModuleType:
    """The module of a file outside any package, under a name of its own, so that two of the same name can be loaded."""
    name = "_cachelint_" + "_".join("".join(c if c.isalnum() else "_" for c in part) for part in path.parts[1:])
    if name in sys.modules:
        return sys.modules[name]
    loader = _loader(name, str(path), rewritten)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _loader(name: str, path: str, rewritten: Mapping[str, str]) -> importlib.machinery.SourceFileLoader:
    return (
        _Rewritten(name, path, rewritten[path])
        if path in rewritten
        else importlib.machinery.SourceFileLoader(name, path)
    )


class _Rewritten(importlib.machinery.SourceFileLoader):
    """Runs another source in the place of a file's own."""

    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source under a file name of its own, whose lines can be shown."""
        shown = self.path + REWRITTEN
        linecache.cache[shown] = (len(self._source), None, self._source.splitlines(keepends=True), shown)
        return compile(self._source, shown, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, rewritten: Mapping[str, str]) -> None:
        self._rewritten = rewritten

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The ordinary spec, with the other loader where the file is rewritten."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or spec.origin not in self._rewritten:
            return None
        spec.loader = _loader(fullname, spec.origin, self._rewritten)
        return spec


@contextmanager
def _rewriting(rewritten: Mapping[str, str]) -> Iterator[None]:
    finder = _Finder(rewritten)
    if rewritten:
        sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if rewritten:
            sys.meta_path.remove(finder)


@contextmanager
def _importable(*folders: Path) -> Iterator[None]:
    added = [str(folder) for folder in folders]
    sys.path[:0] = added
    try:
        yield
    finally:
        for folder in added:
            sys.path.remove(folder)


@contextmanager
def _forgotten(names: frozenset[str], rewritten: Mapping[str, str]) -> Iterator[None]:
    """The block imports ``names``, and what is rewritten, anew; afterwards ``sys.modules`` is as it was."""
    before = dict(sys.modules)
    for name, module in before.items():
        if name in names or getattr(module, "__file__", None) in rewritten:
            del sys.modules[name]
    try:
        yield
    finally:
        for name in set(sys.modules) - set(before):
            del sys.modules[name]
        sys.modules.update({name: module for name, module in before.items() if sys.modules.get(name) is not module})
