"""Bytes to text and back: the only module that opens source files.

Python's own rules hold (PEP 263): a byte order mark means UTF-8, otherwise a coding cookie in the first two lines
counts, otherwise UTF-8. Text keeps its newlines as they are, so that what a fix leaves alone stays byte for byte.
Notebooks become one virtual Python text (see :mod:`cachelint.notebook`).
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from cachelint.model import FileError

if TYPE_CHECKING:
    from cachelint.notebook import Notebook

BOM = codecs.BOM_UTF8
NOTEBOOK_SUFFIX = ".ipynb"

_COOKIE = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK = re.compile(rb"[ \t\f]*(?:#.*)?\Z")
_FIRST_LINES = re.compile(rb"([^\r\n]*)(?:\r\n|\r|\n)?([^\r\n]*)")
_NEWLINE = re.compile(r"\r\n|\r|\n")
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class SourceError(Exception):
    """A file that cannot be read as Python source. ``error`` is the line to show for it."""

    def __init__(self, error: FileError) -> None:
        super().__init__(f"{error.path}:{error.line}: {error.message}")
        self.error = error


class WriteRefused(Exception):
    """A file that is left alone: it changed since it was read, is not writable, or cannot hold the new text."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


@dataclass(frozen=True, slots=True)
class Source:
    """One file as it was read.

    ``path`` is the path to show (relative to the working directory, forward slashes), ``abspath`` the real one.
    ``text`` has no byte order mark and its newlines are untouched. ``exact`` is false for the rare codec whose text does not
    encode back to the same bytes; such a file is linted and never written. ``problems`` are the parts of a notebook
    that could not be read; the rest of it is in ``text``.
    """

    path: str
    abspath: str
    raw: bytes
    text: str
    encoding: str
    bom: bool
    exact: bool = True
    notebook: Notebook | None = None
    problems: tuple[FileError, ...] = ()

    @property
    def digest(self) -> str:
        """The digest of the raw bytes."""
        return digest_of(self.raw)

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of the text, without their ends."""
        return split_lines(self.text)


def digest_of(raw: bytes) -> str:
    """The digest that stands for a file's content everywhere: BLAKE2b, 16 bytes, in hexadecimal."""
    return blake2b(raw, digest_size=16).hexdigest()


def split_lines(text: str) -> tuple[str, ...]:
    """Lines as Python counts them: ended by LF, CRLF or CR only (``str.splitlines`` ends them at form feeds too)."""
    return tuple(_NEWLINE.split(text) if "\r" in text else text.split("\n"))


@lru_cache(maxsize=4096)
def display_path(abspath: str, cwd: str) -> str:
    """The path to show: relative to the working directory, with forward slashes."""
    prefix = cwd if cwd.endswith(os.sep) else cwd + os.sep
    if abspath.startswith(prefix):
        shown = abspath[len(prefix) :] or "."
    else:
        folder, base = os.path.split(abspath)
        above = cwd == abspath or cwd.startswith(abspath if abspath.endswith(os.sep) else abspath + os.sep)
        try:  # files stand together: their folders are few
            shown = os.path.relpath(abspath, cwd) if above else os.path.join(_relative(folder, cwd), base)
            shown = shown.removeprefix(f".{os.sep}")
        except ValueError:  # another drive on Windows
            shown = abspath
    return shown.replace(os.sep, "/") if os.sep != "/" else shown


@lru_cache(maxsize=4096)
def _relative(folder: str, cwd: str) -> str:
    return os.path.relpath(folder, cwd)


def read_bytes(abspath: str) -> bytes:
    """The content of a regular file. Raises OSError; never blocks on a pipe or a device."""
    handle = os.open(abspath, _OPEN_FLAGS)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, "is a directory", abspath)
            raise OSError(errno.EINVAL, "not a regular file", abspath)
        size = status.st_size
        first = os.read(handle, size + 1)
        if len(first) == size:
            return first
        parts = [first]
        while part := os.read(handle, 1 << 20):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(handle)


def load(abspath: str, path: str) -> Source:
    """Read and decode one file. Raises SourceError."""
    try:
        raw = read_bytes(abspath)
    except OSError as error:
        raise SourceError(FileError(path, 1, describe(error))) from error
    return decode(raw, path, abspath)


def describe(error: OSError) -> str:
    """What went wrong with a file, in words that say what to do."""
    if error.errno == errno.ENOENT:
        return "no such file"
    if error.errno == errno.ELOOP:
        return "the symbolic link leads back to itself: remove or repair it"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "permission denied: make it readable or exclude it"
    if error.errno == errno.EISDIR:
        return "is a directory"
    reason = (error.strerror or str(error)).lower()
    return f"cannot be read: {reason}"


def decode(raw: bytes, path: str, abspath: str) -> Source:
    """Bytes to a Source; notebooks by their suffix. Raises SourceError."""
    if abspath.endswith(NOTEBOOK_SUFFIX):
        return _decode_notebook(raw, path, abspath)
    if raw.startswith(_UTF16_MARKS):
        raise _fail(path, 1, "UTF-16 is not an encoding that Python reads source in: save it as UTF-8")
    bom = raw.startswith(BOM)
    body = raw[len(BOM) :] if bom else raw
    encoding = _encoding(body, bom, path)
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        raise _fail(path, _line_of(body, error.start), _undecodable(body, encoding, error)) from error
    except (UnicodeError, ValueError) as error:  # codecs that do not say where
        raise _fail(path, 1, f"cannot be decoded as {encoding}: {error}") from error
    null = text.find("\0")
    if null >= 0:
        line = len(_NEWLINE.findall(text, 0, null)) + 1
        raise _fail(path, line, "null byte in the source: this is not Python text")
    exact = encoding in ("utf-8", "iso-8859-1", "ascii") or _encodes_back(text, encoding, body)
    return Source(path, abspath, raw, text, encoding, bom, exact)


def encode(source: Source, text: str) -> bytes:
    """The bytes of ``text`` in the encoding and with the byte order mark of ``source``. Raises WriteRefused."""
    if source.notebook is not None:
        from cachelint.notebook import NotebookError

        try:
            return source.notebook.render(source.raw, text)
        except NotebookError as error:
            raise WriteRefused(source.path, str(error)) from error
    try:
        body = text.encode(source.encoding)
    except UnicodeError as error:
        raise WriteRefused(source.path, f"the new text cannot be written as {source.encoding}: {error}") from error
    return BOM + body if source.bom else body


def write_back(source: Source, text: str) -> bool:
    """Replace the file by ``text``, atomically, keeping mode, encoding, byte order mark and newlines.

    Returns whether anything was written. Raises WriteRefused when the file changed since it was read, cannot be
    written, or does not round-trip; the file is then untouched.
    """
    if text == source.text:
        return False
    if not source.exact:
        raise WriteRefused(source.path, f"its {source.encoding} bytes do not survive decoding and encoding")
    new = encode(source, text)
    if new == source.raw:
        return False
    target = os.path.realpath(source.abspath)  # a symbolic link stays one
    try:
        status = os.stat(target)
        if digest_of(read_bytes(target)) != source.digest:
            raise WriteRefused(source.path, "changed since it was read: run again")
        if not os.access(target, os.W_OK):
            raise WriteRefused(source.path, "is write-protected")
        replace_file(target, new, mode=stat.S_IMODE(status.st_mode), sync=True)
    except OSError as error:
        raise WriteRefused(source.path, f"cannot be written: {(error.strerror or str(error)).lower()}") from error
    return True


def replace_file(target: str, content: bytes, mode: int | None = None, sync: bool = False) -> None:
    """Put ``content`` at ``target`` in one step: a reader sees the old file or the new one.

    Raises OSError, also where the target is there and no regular file: a device would become one.
    """
    if os.path.exists(target) and not os.path.isfile(target):
        reason = "Is a directory" if os.path.isdir(target) else "Not a regular file"
        raise OSError(errno.EINVAL, reason, target)
    folder, name = os.path.split(target)
    handle, temporary = tempfile.mkstemp(prefix=f".{name}.", suffix=".tmp", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _decode_notebook(raw: bytes, path: str, abspath: str) -> Source:
    from cachelint.notebook import NotebookError, parse

    try:
        notebook = parse(raw)
    except NotebookError as error:
        raise _fail(path, error.line, str(error)) from error
    text = notebook.text
    problems = tuple(FileError(path, line, message) for line, message in notebook.problems)
    bom = raw.startswith(BOM)
    return Source(path, abspath, raw, text, "utf-8", bom, True, notebook, problems)


def _encoding(body: bytes, bom: bool, path: str) -> str:
    """The codec of a file, by its first two lines, in the spelling that :mod:`codecs` uses."""
    match = _FIRST_LINES.match(body)
    first, second = match.groups() if match else (b"", b"")
    line = 1
    cookie = _COOKIE.match(first)
    if cookie is None and _BLANK.match(first):
        line = 2
        cookie = _COOKIE.match(second)
    if cookie is None:
        return "utf-8"
    written = cookie[1].decode("ascii", "replace")
    name = _usual_name(written)
    try:
        codec = codecs.lookup(name)
    except LookupError as error:
        raise _fail(path, line, f"unknown encoding {written!r} in the coding cookie") from error
    if not getattr(codec, "_is_text_encoding", True):
        raise _fail(path, line, f"{written!r} in the coding cookie is not a text encoding")
    if bom and codec.name != "utf-8":
        raise _fail(path, line, f"the coding cookie says {written!r}, the byte order mark says UTF-8: remove one")
    return codec.name


def _usual_name(written: str) -> str:
    """Editors append ``-unix`` and the like; Python takes these as the plain codec."""
    name = written[:12].lower().replace("_", "-")
    if name == "utf-8" or name.startswith("utf-8-"):
        return "utf-8"
    for latin in ("latin-1", "iso-8859-1", "iso-latin-1"):
        if name == latin or name.startswith(latin + "-"):
            return "iso-8859-1"
    return written


def _undecodable(body: bytes, encoding: str, error: UnicodeDecodeError) -> str:
    byte = f"0x{body[error.start]:02x}" if error.start < len(body) else "end of file"
    if encoding == "utf-8":
        return f"not UTF-8 (byte {byte}): save it as UTF-8, or name its encoding as in `# -*- coding: latin-1 -*-`"
    return f"not {encoding}, as its coding cookie says (byte {byte})"


def _encodes_back(text: str, encoding: str, body: bytes) -> bool:
    try:
        return text.encode(encoding) == body
    except (UnicodeError, ValueError):
        return False


def _line_of(body: bytes, offset: int) -> int:
    before = body[:offset].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return before.count(b"\n") + 1


def _fail(path: str, line: int, message: str) -> SourceError:
    return SourceError(FileError(path, line, message))
