"""Paths to files: what is linted, and which project each file belongs to.

Directories are walked without following symbolic links (a linked file counts unless its target is walked anyway).
Skipped are what git ignores, the built-in names below, and the configured patterns; a path named on the command line
is examined all the same. Whatever cannot be read yields one FileError and never ends the walk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field

from cachelint.config import Config, ConfigError, Configs
from cachelint.model import FileError
from cachelint.patterns import NOTHING, Patterns, parse
from cachelint.source import NOTEBOOK_SUFFIX, describe, display_path

SUFFIXES = (".py", NOTEBOOK_SUFFIX)
"""What a walk picks up. Stubs have no bodies to check; any other file is linted when it is named."""

_NAMES = """
.bzr .direnv .eggs .git .git-rewrite .hg .hypothesis .idea .ipynb_checkpoints .mypy_cache .nox .pants.d .pyenv
.pytest_cache .pytype .ruff_cache .cachelint_cache .svn .tox .venv .vscode __pycache__ __pypackages__ buck-out
node_modules site-packages venv
"""
DEFAULT_EXCLUDES = frozenset(_NAMES.split())
OUTPUT_FOLDERS = frozenset({"build", "_build", "dist", "env"})
"""Skipped as well, unless they are packages: a folder of that name with an ``__init__.py`` is somebody's module."""

ALWAYS_EXCLUDED = frozenset({".git", ".hg", ".svn", "__pycache__", ".cachelint_cache"})
"""Skipped also where a configured ``exclude`` stands in for the built-in names."""

ROOT_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")

MOST_ENTRIES = 100_000
"""A root with more directory entries than this is no project (a home directory); its packages are taken one by one."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A project: the directory that its imports start from, and its Python files (absolute, sorted).

    ``extent`` is the directory that they lie in; with a separator at its end, in it and not below.
    """

    root: str
    extent: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """``requested`` maps each file to examine (absolute, sorted) to the index of its project in ``scopes``.

    ``named`` are those that were named themselves, not found in a directory.
    """

    requested: dict[str, int]
    scopes: tuple[Scope, ...]
    errors: tuple[FileError, ...]
    named: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Tree:
    """One finished walk."""

    files: list[str] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)
    errors: list[tuple[str, FileError]] = field(default_factory=list)
    entries: int = 0
    complete: bool = True


_Ignores = tuple[tuple[int, Patterns], ...]
"""Ignore files from the top down: the length of the directory's prefix, and its patterns."""


class Discovery:
    """Walks directories for one run; every directory is read once."""

    def __init__(self, cwd: str, configs: Configs) -> None:
        self._cwd = cwd
        self._configs = configs
        self._trees: dict[str, _Tree] = {}
        self._marked: dict[str, str | None] = {}
        self._given: set[str] = set()

    def find(self, paths: Iterable[str], extra: Iterable[str] = ()) -> Found:
        """The files to examine under ``paths`` and their projects.

        ``extra`` are absolute paths of texts that need not be on disk (standard input, an editor's buffers).
        """
        requested: dict[str, str] = {}  # file -> project root
        errors: dict[str, FileError] = {}
        named: set[str] = set()
        for path in paths:
            absolute = os.path.normpath(os.path.join(self._cwd, path))
            try:
                mode = os.stat(absolute).st_mode
            except OSError as error:
                errors[absolute] = self._error(absolute, _unreachable(absolute, error))
                continue
            except ValueError:
                errors[absolute] = FileError(repr(path), 1, "not a path: it holds a null byte")
                continue
            if stat.S_ISDIR(mode):
                self._given.add(absolute)
                root = self.project_root(absolute, given=absolute)
                tree = self._below(absolute, root)
                errors.update(tree.errors)
                for file in tree.files:
                    requested.setdefault(file, self.project_root(os.path.dirname(file), given=absolute))
            elif not stat.S_ISREG(mode):
                errors[absolute] = self._error(absolute, "not a regular file; `-` reads standard input")
            elif not self._forced_out(absolute):
                named.add(absolute)
                requested.setdefault(absolute, self.project_root(os.path.dirname(absolute)))
        for absolute in extra:
            if not self._forced_out(absolute):
                named.add(absolute)
                requested[absolute] = self.project_root(os.path.dirname(absolute))
        numbered, scopes = self._scopes(requested)
        return Found(numbered, scopes, tuple(errors[key] for key in sorted(errors)), frozenset(named))

    def project_root(self, directory: str, given: str | None = None) -> str:
        """Where the project of a directory begins.

        The nearest ancestor with one of ROOT_MARKERS; else the working directory when it is an ancestor; else, for a
        directory below ``given`` (named on the command line) the parent of the topmost package around that, and
        the parent of the topmost package around ``directory`` otherwise.
        """
        marked = self._marker_above(directory)
        if marked is not None:
            return marked
        if self._below_cwd(directory):
            return self._cwd
        if given is not None and _inside(directory, given):
            return _package_parent(given)
        return _package_parent(directory)

    def _marker_above(self, directory: str) -> str | None:
        trail = []
        at = directory
        while at not in self._marked:
            trail.append(at)
            parent = os.path.dirname(at)
            # A package inside a package has its imports from the top, whatever build files lie beside it.
            inner = _topmost_package(at) not in (None, at)
            if not inner and any(os.path.exists(os.path.join(at, marker)) for marker in ROOT_MARKERS):
                self._marked[at] = at
                break
            # An installed package is its own project, not part of the one that holds the environment.
            if parent == at or os.path.basename(at) in DEFAULT_EXCLUDES:
                self._marked[at] = None
                break
            at = parent
        for one in trail:
            self._marked[one] = self._marked[at]
        return self._marked[at]

    def _below_cwd(self, directory: str) -> bool:
        """Whether the working directory holds ``directory``, with no installed environment in between."""
        if not _inside(directory, self._cwd):
            return False
        return DEFAULT_EXCLUDES.isdisjoint(directory[len(self._cwd) :].split(os.sep))

    def _scopes(self, requested: dict[str, str]) -> tuple[dict[str, int], tuple[Scope, ...]]:
        groups: dict[tuple[str, str], list[str]] = {}
        for file, root in requested.items():
            groups.setdefault((root, self._extent(root, os.path.dirname(file))), []).append(file)
        numbered: dict[str, int] = {}
        scopes = []
        for number, ((root, extent), members) in enumerate(sorted(groups.items())):
            listed = self._listing(extent) if extent else []
            files = {file for file in (*listed, *members) if file.endswith(".py")}
            scopes.append(Scope(root, extent, tuple(sorted(files))))
            numbered.update(dict.fromkeys(members, number))
        return {file: numbered[file] for file in sorted(numbered)}, tuple(scopes)

    def _extent(self, root: str, directory: str) -> str:
        """The directory whose files make up the project around ``directory``; a trailing separator means it alone."""
        if (self._is_whole(directory) or root in self._given) and self._is_small(root):
            return root
        top = _topmost_package(directory)
        if top is not None and self._is_small(top):
            return top
        return directory + os.sep

    def _is_whole(self, directory: str) -> bool:
        """Whether the project root above ``directory`` is one by its own signs, and not by what was asked for."""
        return self._marker_above(directory) is not None or self._below_cwd(directory)

    def _is_small(self, top: str) -> bool:
        tree = self._tree(top, MOST_ENTRIES)
        return tree.complete and tree.entries <= MOST_ENTRIES

    def _listing(self, extent: str) -> list[str]:
        if not extent.endswith(os.sep):
            return self._tree(extent, MOST_ENTRIES).files
        try:
            names = os.listdir(extent)
        except OSError:
            return []
        return [extent + name for name in names if name.endswith(".py") and os.path.isfile(extent + name)]

    def _below(self, directory: str, root: str) -> _Tree:
        """Everything under a directory that was asked for; taken from its project's walk where that reached it."""
        tree = self._tree(root, MOST_ENTRIES) if self._is_whole(directory) else None
        if tree is None or not tree.complete or directory not in tree.folders:
            return self._tree(directory, None)
        if directory == root:
            return tree
        prefix = directory + os.sep
        return _Tree(
            [file for file in tree.files if file.startswith(prefix)],
            {folder for folder in tree.folders if folder.startswith(prefix)},
            [(path, error) for path, error in tree.errors if path.startswith(prefix)],
        )

    def _tree(self, top: str, limit: int | None) -> _Tree:
        tree = self._trees.get(top)
        if tree is None or not (tree.complete or limit):
            tree = self._trees[top] = self._walk(top, limit)
        return tree

    def _walk(self, top: str, limit: int | None) -> _Tree:
        tree = _Tree()
        real = os.path.realpath(top)
        pending: list[tuple[str, _Ignores]] = [(top, self._ignores_above(top))]
        while pending:
            folder, ignores = pending.pop()
            config = self._config(folder)
            try:
                with os.scandir(folder) as scan:
                    entries = list(scan)
            except OSError as error:
                tree.errors.append((folder, self._error(folder, describe(error))))
                continue
            tree.entries += len(entries)
            if limit is not None and tree.entries > limit:
                tree.complete = False
                return tree
            tree.folders.add(folder)
            names = {entry.name for entry in entries}
            if "pyvenv.cfg" in names and folder != top:
                continue
            ignores = self._with_own(folder, names, ignores) if config.settings.respect_gitignore else ()
            for entry in entries:
                if self._accepts(entry, config, ignores, tree):
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((entry.path, ignores))
                    else:
                        self._add_file(entry, real, tree)
        tree.files.sort()
        return tree

    def _config(self, folder: str) -> Config:
        """The configuration of a folder; a broken one is reported when one of its files is examined, not here."""
        while True:
            try:
                return self._configs.at(folder)
            except ConfigError:
                parent = os.path.dirname(folder)
                if parent == folder:
                    raise
                folder = parent

    def _accepts(self, entry: os.DirEntry[str], config: Config, ignores: _Ignores, tree: _Tree) -> bool:
        """Whether an entry is a folder to walk or a file to lint."""
        name, path = entry.name, entry.path
        try:
            folder = entry.is_dir(follow_symlinks=False)
        except OSError as error:
            tree.errors.append((path, self._error(path, describe(error))))
            return False
        if folder:
            if name in ALWAYS_EXCLUDED or (config.default_excludes and _excluded_by_default(name, path)):
                return False
        elif not name.endswith(SUFFIXES):
            return False
        if _ignored(path, folder, ignores):
            return False
        relative = config.relative(path) if config.exclude else None
        return relative is None or not config.exclude.match(relative, folder)

    def _add_file(self, entry: os.DirEntry[str], real_top: str, tree: _Tree) -> None:
        name, path = entry.name, entry.path
        try:
            if entry.is_symlink():
                if name.startswith(".#"):  # an editor's lock is a link to nowhere
                    return
                target = os.path.realpath(path, strict=True)
                if os.path.isdir(target) or (target.endswith(SUFFIXES) and _inside(target, real_top)):
                    return  # links to folders are not followed, and a linked file of this tree is linted where it is
            if entry.is_file():
                tree.files.append(path)
            else:
                tree.errors.append((path, self._error(path, "not a regular file")))
        except OSError as error:
            tree.errors.append((path, self._error(path, _unreachable(path, error))))

    def _ignores_above(self, top: str) -> _Ignores:
        """The ignore files between the repository's root and ``top``; none when they ignore ``top`` itself."""
        repository = top
        while not os.path.exists(os.path.join(repository, ".git")):
            parent = os.path.dirname(repository)
            if parent == repository:
                return ()
            repository = parent
        ignores: _Ignores = ()
        at = repository
        rest = [] if repository == top else os.path.relpath(top, repository).split(os.sep)
        for part in rest:
            ignores = self._with_own(at, {".gitignore", ".git"}, ignores)
            at = os.path.join(at, part)
            if _ignored(at, True, ignores):
                return ()
        return ignores

    def _with_own(self, folder: str, names: set[str], ignores: _Ignores) -> _Ignores:
        """``ignores`` with those of a folder itself; a repository inside another starts anew."""
        prefix = len(folder) + (not folder.endswith(os.sep))
        own: list[tuple[int, Patterns]] = []
        if ".git" in names:
            ignores = ()
            own.append((prefix, _patterns_of(os.path.join(folder, ".git", "info", "exclude"))))
        if ".gitignore" in names:
            own.append((prefix, _patterns_of(os.path.join(folder, ".gitignore"))))
        return (*ignores, *(item for item in own if item[1]))

    def _forced_out(self, path: str) -> bool:
        """Whether a file named on the command line is left out after all (``force-exclude``)."""
        config = self._configs.of(path)
        if not config.force_exclude:
            return False
        relative = config.relative(path)
        if relative is None:
            return False
        folders = relative.split("/")[:-1]
        if config.default_excludes and any(name in DEFAULT_EXCLUDES for name in folders):
            return True
        return config.exclude.covers(relative)

    def _error(self, path: str, message: str) -> FileError:
        return FileError(display_path(path, self._cwd), 1, message)


def _unreachable(path: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError) and os.path.islink(path):
        return "broken symbolic link: remove or repair it"
    return describe(error)


def _excluded_by_default(name: str, path: str) -> bool:
    if name in DEFAULT_EXCLUDES or name.endswith(".egg-info"):
        return True
    return name in OUTPUT_FOLDERS and not os.path.exists(os.path.join(path, "__init__.py"))


def _ignored(path: str, folder: bool, ignores: _Ignores) -> bool:
    for prefix, rules in reversed(ignores):
        relative = path[prefix:]
        verdict = rules.match(relative.replace(os.sep, "/") if os.sep != "/" else relative, folder)
        if verdict is not None:
            return verdict
    return False


def _patterns_of(path: str) -> Patterns:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return parse(file.read())
    except OSError:
        return NOTHING


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)


def _topmost_package(directory: str) -> str | None:
    top = None
    while os.path.isfile(os.path.join(directory, "__init__.py")):
        top, parent = directory, os.path.dirname(directory)
        if parent == directory:
            break
        directory = parent
    return top


def _package_parent(directory: str) -> str:
    top = _topmost_package(directory)
    return os.path.dirname(top) if top is not None else directory
