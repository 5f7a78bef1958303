"""The cache: verdicts of earlier runs, kept per project, good only while everything that they used is the same.

One *pack* holds what is known of one project under one configuration: the digest of every project file at the time, and
a record for each file that yielded something. A record names what its verdict used beside its own text: files by
digest, files that were looked for in vain, and names that the whole project was searched for. A later run compares
digests; where nothing changed every record holds as it is, otherwise :func:`carried` keeps the records that hold.

Packs are written in one step and carry a digest of themselves: concurrent runs never see half of one, and a damaged
one is as good as none. They are JSON; nothing is ever unpickled.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from cachelint import __version__, facts
from cachelint.settings import Settings
from cachelint.source import digest_of, read_bytes, replace_file

FOLDER_NAME = ".cachelint_cache"
MOST_PACKS = 48
"""More than these are removed, the least recently used first."""

_A_DAY = 86_400
_MAGIC = b"cachelint pack 1 "
_PACK = re.compile(r"[0-9a-f]{32}\.pack|\.[0-9a-f]{32}\.pack\..*\.tmp")
"""The names of packs, and of those that a run left behind that was killed while it wrote."""

_IGNORE = b"# Made by cachelint.\n*\n"
_TAG = b"Signature: 8a477f597d28d172789f06886806bc55\n# This folder is a cache made by cachelint.\n"
_MARKS = {".gitignore": _IGNORE, "CACHEDIR.TAG": _TAG}


@dataclass(frozen=True, slots=True)
class Record:
    """What one file yielded, and what that rests on.

    ``digest`` is that of the file itself. ``deps`` are other files by absolute path and digest, ``missing`` the last
    names of modules that were looked for in vain, ``asked`` the statements that it wants to know of in any file (see
    :mod:`cachelint.facts`). ``head`` and ``body`` are lines of JSON that only the runner reads.
    """

    path: str
    digest: str
    deps: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    head: bytes = b"{}"
    body: bytes = b"[]"


@dataclass(slots=True)
class Pack:
    """What is known of a project: ``files`` maps every file of it to its digest, ``empty`` are those that yield nothing
    whatever the others say, ``stated`` is what the files say on questions that go to all of them.
    """

    files: dict[str, str] = field(default_factory=dict)
    empty: set[str] = field(default_factory=set)
    stated: dict[str, frozenset[str]] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)


def locate(cwd_root: str, requested: Iterable[str], configured: str | None) -> str | None:
    """The cache folder of a run: the configured one; beside the project when all of the run lies inside it; else the
    user's cache directory. None where none of them can be written.
    """
    candidates: list[str] = []
    override = os.environ.get("CACHELINT_CACHE_DIR") or configured
    if override:
        candidates.append(os.path.abspath(override))
    else:
        prefix = cwd_root if cwd_root.endswith(os.sep) else cwd_root + os.sep
        if all(path.startswith(prefix) for path in requested):
            candidates.append(os.path.join(cwd_root, FOLDER_NAME))
    for folder in candidates:
        if _usable(folder):
            return folder
    import platformdirs

    folder = platformdirs.user_cache_dir("cachelint", appauthor=False)
    return folder if _usable(folder) else None


def tool_digest() -> str:
    """What stands for cachelint itself: its version, the Python that runs it, and the files that it consists of.

    Sizes and modification times stand for the content of the files, so that an edit in a checkout counts.
    """
    from cachelint.data import rules_dir

    package = os.path.dirname(os.path.abspath(__file__))
    digest = blake2b(digest_size=16)
    digest.update(f"{__version__}\0{sys.version}\0{package}".encode())
    pending = [rules_dir(), package]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in ("__pycache__", "runtime"):  # no verdict comes from the runtime
                    pending.append(entry.path)
            elif entry.name.endswith((".py", ".toml")):
                status = entry.stat()
                digest.update(
                    f"{entry.path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogatepass")
                )
    return digest.hexdigest()


def pack_key(tool: str, settings: Settings, cwd: str, root: str, extent: str) -> str:
    """The name of the pack of a project under a configuration. ``extent`` tells apart projects with one root."""
    text = "\0".join((tool, repr(settings), cwd, root, extent))
    return digest_of(text.encode("utf-8", "surrogatepass"))


class Cache:
    """The packs in one folder. No method raises for a damaged, missing or read-only cache."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def load(self, key: str) -> Pack:
        """The pack under ``key``; an empty one when there is none that can be trusted."""
        try:
            path = self._path(key)
            pack = _decoded(read_bytes(path))
            if time.time() - os.stat(path).st_mtime > _A_DAY:
                os.utime(path)  # in use: not the next to be pruned
            return pack
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return Pack()

    def save(self, key: str, pack: Pack) -> bool:
        """Write a pack in one step; whether that was possible."""
        try:
            os.makedirs(self.folder, exist_ok=True)
            self._mark()
            replace_file(self._path(key), _encoded(pack))
            self._prune()
        except OSError:
            return False
        return True

    def _path(self, key: str) -> str:
        return os.path.join(self.folder, f"{key}.pack")

    def _mark(self) -> None:
        """Keep a new folder out of git and of backups; one with other things in it is somebody else's."""
        if not os.listdir(self.folder):
            for name, content in _MARKS.items():
                replace_file(os.path.join(self.folder, name), content)

    def _prune(self) -> None:
        with os.scandir(self.folder) as scan:
            packs = [entry for entry in scan if _PACK.fullmatch(entry.name)]
        if len(packs) <= MOST_PACKS:
            return
        for entry in sorted(packs, key=_age)[: len(packs) - MOST_PACKS]:
            _remove(entry.path)


def clean(folder: str) -> int:
    """Remove what cachelint made in a folder, and the folder when that was all; how many files that were.

    Raises OSError when something cannot be removed.
    """
    names = os.listdir(folder) if os.path.isdir(folder) else []
    ours = [name for name in names if _PACK.fullmatch(name) or _is_mark(folder, name)]
    for name in ours:
        os.unlink(os.path.join(folder, name))
    if ours and len(ours) == len(names):
        os.rmdir(folder)
    return len(ours)


def carried(pack: Pack, files: Mapping[str, str], raw: Callable[[str], bytes | None]) -> Pack:
    """The part of ``pack`` that still holds now that the project's files are ``files`` (path to digest).

    ``raw`` gives the current bytes of any file, None where it cannot be read. Records of files outside the project keep
    their own digest, which whoever uses them has to compare.
    """
    fresh = {path for path, digest in files.items() if pack.files.get(path) != digest}
    gone = pack.files.keys() - files.keys()
    appeared = {module_name(path) for path in fresh - pack.files.keys()}
    stated = {path: words for path, words in pack.stated.items() if path not in fresh and path not in gone}
    touched = {word for path in fresh | gone for word in pack.stated.get(path, ())}
    wanted = {word for record in pack.records.values() for word in record.asked}
    for path in fresh:
        content = raw(path) or b""
        words = facts.stated(content)
        touched |= words
        if words:
            stated[path] = words
        if wanted:
            touched |= wanted & facts.words(content)
    if any(os.path.basename(path) == "__init__.py" for path in (fresh - pack.files.keys()) | gone):
        return Pack(dict(files), stated=stated)  # a package appeared or went: every dotted name may have changed
    outside: dict[str, str | None] = {}

    def digest_now(path: str) -> str | None:
        if path in files:
            return files[path]
        if path not in outside:
            content = raw(path)
            outside[path] = None if content is None else digest_of(content)
        return outside[path]

    def holds(record: Record) -> bool:
        if record.path in files and files[record.path] != record.digest:
            return False
        if any(digest_now(path) != digest for path, digest in record.deps):
            return False
        if not appeared.isdisjoint(record.missing):
            return False
        return touched.isdisjoint(record.asked)

    return Pack(
        dict(files),
        {path for path in pack.empty if path in files and path not in fresh},
        stated,
        {path: record for path, record in pack.records.items() if holds(record)},
    )


def module_name(path: str) -> str:
    """The last name of the module at a path."""
    return os.path.basename(path).removesuffix(".py")


def _usable(folder: str) -> bool:
    """Whether the folder can be written, or made."""
    while not os.path.isdir(folder):
        parent = os.path.dirname(folder)
        if parent == folder or os.path.lexists(folder):
            return False
        folder = parent
    return os.access(folder, os.W_OK | os.X_OK)


def _is_mark(folder: str, name: str) -> bool:
    """Whether a file is one of those that :meth:`Cache.save` puts beside the packs."""
    if name not in _MARKS:
        return False
    try:
        return read_bytes(os.path.join(folder, name)) == _MARKS[name]
    except OSError:
        return False


def _age(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat().st_mtime
    except OSError:
        return 0.0


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _encoded(pack: Pack) -> bytes:
    files = [[path, digest, path in pack.empty] for path, digest in pack.files.items()]
    records: list[dict[str, Any]] = []
    lines: list[bytes] = []
    for record in pack.records.values():
        rest = {"deps": record.deps, "missing": record.missing, "asked": record.asked}
        records.append(
            {"path": record.path, "digest": record.digest} | {key: value for key, value in rest.items() if value}
        )
        lines += [record.head, record.body]
    stated = {path: sorted(words) for path, words in pack.stated.items()}
    index = json.dumps({"files": files, "records": records}, separators=(",", ":")).encode("ascii")
    content = b"\n".join([index, json.dumps(stated, separators=(",", ":")).encode("ascii"), *lines])
    return _MAGIC + digest_of(content).encode("ascii") + b"\n" + content


def _decoded(raw: bytes) -> Pack:
    """Raises ValueError, KeyError or TypeError for anything but a whole pack."""
    first, _, content = raw.partition(b"\n")
    if first != _MAGIC + digest_of(content).encode("ascii"):
        raise ValueError("damaged")
    lines = content.split(b"\n")
    index = json.loads(lines[0])
    pack = Pack(
        {path: digest for path, digest, _ in index["files"]},
        {path for path, _, none in index["files"] if none},
        {path: frozenset(words) for path, words in json.loads(lines[1]).items()},
    )
    for number, item in enumerate(index["records"]):
        pack.records[item["path"]] = Record(
            item["path"],
            item["digest"],
            tuple((path, digest) for path, digest in item.get("deps", ())),
            tuple(item.get("missing", ())),
            tuple(item.get("asked", ())),
            lines[2 + 2 * number],
            lines[3 + 2 * number],
        )
    return pack
