"""Jupyter notebooks as one virtual Python text, and back.

The code cells are joined, each under a marker comment that carries its number. Magics and shell escapes become
``pass`` (or a comment) with a marker of their own, line for line, so that every virtual line is one line of one cell.
Writing back replaces the ``source`` values of changed cells inside the original JSON text and nothing else.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from cachelint.scan import logical_end

_CELL = re.compile(r"^# %% \[cachelint cell (\d+)\]$", re.MULTILINE)
_MAGIC = re.compile(r"^.*# \[cachelint magic (\d+)\][ \t]*$", re.MULTILINE)
_ESCAPE = re.compile(r"[ \t]*(?:[%!?]|[,;/][ \t]?\w)")
_HELP = re.compile(r"[ \t]*[\w.*]+\?{1,2}[ \t]*\Z")
_ASSIGNED = re.compile(r"([ \t]*[\w.,\[\]'\" \t]+?=[ \t]*)[!%](?!=)")
_PYTHON_CELL_MAGICS = frozenset({"time", "timeit", "capture", "prun", "python", "python3", "debug", "memit", "mprun"})
_NEWLINE = re.compile(r"\r\n|\r|\n")
_SPACE = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"[ \t]*")


class NotebookError(Exception):
    """A notebook that cannot be read, or an edit that does not map back to its cells. ``line`` is in the JSON."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Notebook:
    """The virtual text of a notebook and what is needed to write it back.

    ``cells`` are the numbers of the code cells (1-based, Markdown cells count), ``starts`` the virtual line on which
    the marker of each stands. ``magics`` are the original lines that markers stand for. ``problems`` are pairs of a
    virtual line and a message: cells that are not Python, left out of ``text``.
    """

    text: str
    cells: tuple[int, ...]
    starts: tuple[int, ...]
    magics: tuple[str, ...]
    problems: tuple[tuple[int, str], ...] = ()

    def place(self, line: int) -> tuple[int, int]:
        """The cell and the line in it (both 1-based) of a virtual line."""
        at = max(0, bisect_right(self.starts, line) - 1)
        if not self.cells:
            return (1, line)
        return (self.cells[at], max(1, line - self.starts[at]))

    def render(self, raw: bytes, text: str) -> bytes:
        """The notebook's bytes with its cells taken from an edited virtual text. Raises NotebookError."""
        new = self._split(text)
        old = self._split(self.text)
        document = _text_of(raw)
        spans = list(_source_spans(document))
        parts: list[str] = []
        done = 0
        for cell in self.cells:
            if new[cell] == old[cell]:
                continue
            start, end, value = spans[cell - 1]
            parts += [document[done:start], _rendered(document, start, end, value, new[cell])]
            done = end
        parts.append(document[done:])
        bom = b"\xef\xbb\xbf" if raw.startswith(b"\xef\xbb\xbf") else b""
        return bom + "".join(parts).encode("utf-8")

    def _split(self, text: str) -> dict[int, str]:
        """Cell number to source, with magics put back."""
        marks = list(_CELL.finditer(text))
        if tuple(int(mark[1]) for mark in marks) != self.cells:
            raise NotebookError("the edit moved code across the notebook's cells")
        if sorted(int(found[1]) for found in _MAGIC.finditer(text)) != list(range(len(self.magics))):
            raise NotebookError("the edit changed a line with a magic or a shell escape")
        head = text[: marks[0].start()] if marks else ""
        found = {}
        for mark, after in zip(marks, [*marks, None][1:], strict=True):
            body = text[mark.end() + 1 : after.start() if after else len(text)]
            body = (head + body).removesuffix("\n")
            head = ""
            found[int(mark[1])] = _MAGIC.sub(lambda magic: self.magics[int(magic[1])], body)
        return found


def parse(raw: bytes) -> Notebook:
    """Read a notebook of format 4. Raises NotebookError.

    A notebook for another language yields an empty text. A cell that is not Python is left out, with a problem.
    """
    document = _text_of(raw)
    try:
        data = json.loads(document)
    except json.JSONDecodeError as error:
        raise NotebookError(f"not a notebook: {error.msg.lower()}", error.lineno) from error
    except (RecursionError, ValueError) as error:
        raise NotebookError("not a notebook: its JSON is nested too deeply or has a number too long") from error
    if not isinstance(data, dict) or not isinstance(data.get("cells"), list):
        raise NotebookError("not a notebook of format 4: it has no list of cells")
    if _language(data) != "python":
        return Notebook("", (), (), ())
    sources: dict[int, str] = {}
    for number, cell in enumerate(data["cells"], start=1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        if "source" not in cell:
            continue
        source = cell["source"]
        if isinstance(source, list) and all(isinstance(line, str) for line in source):
            source = "".join(source)
        if not isinstance(source, str):
            raise NotebookError(f"not a notebook of format 4: the source of cell {number} is not text")
        sources[number] = source
    return _joined(sources)


def _joined(sources: dict[int, str]) -> Notebook:
    """Join the cells; when the whole is not Python, leave out the cells that are to blame."""
    magics: list[str] = []
    problems: list[tuple[int, str]] = []
    starts: list[int] = []
    parts: list[str] = []
    whole = _syntax_error("\n".join(_neutral(source, []) for source in sources.values())) is None
    line = 1
    for cell, source in sources.items():
        starts.append(line)
        error = None if whole else _syntax_error(_neutral(source, []))
        if error is None:
            text = _neutral(source, magics)
        else:
            problems.append((line + error[0], f"cell {cell}, line {error[0]}: {error[1]}"))
            text = _all_hidden(source, magics)
        parts.append(f"# %% [cachelint cell {cell}]\n{text}\n")
        line += 2 + len(_NEWLINE.findall(text))
    return Notebook("".join(parts), tuple(sources), tuple(starts), tuple(magics), tuple(problems))


def _syntax_error(text: str) -> tuple[int, str] | None:
    """Line and message where ``text`` is not Python of any version; None where it is."""
    from cachelint.index.lower import check

    try:
        check(text, "cell")
    except SyntaxError as error:
        return (error.lineno or 1, error.msg)
    return None


def _neutral(source: str, magics: list[str]) -> str:
    """The cell with magics and shell escapes hidden behind markers, line for line."""
    if _CELL.search(source) or _MAGIC.search(source):
        return source  # text that looks like our markers: linted as it is, refused on writing back
    head = source.lstrip(" \t\r\n")
    if head.startswith("%%"):
        name = re.match(r"%%(\w*)", head)
        if name is None or name[1] not in _PYTHON_CELL_MAGICS:
            return _all_hidden(source, magics)
    parts: list[str] = []
    at = 0
    while at < len(source):
        line_end = source.find("\n", at)
        line_end = len(source) if line_end < 0 else line_end
        line = source[at:line_end]
        assigned = _ASSIGNED.match(line)
        if not (assigned or _ESCAPE.match(line) or _HELP.match(line)):
            end = logical_end(source, at)
            parts.append(source[at:end])
            at = end
            continue
        indent = _INDENT.match(line)
        code = assigned[1] + "None" if assigned else (indent[0] if indent else "") + "pass"
        parts.append(_hidden(line, code, magics))
        while line.endswith("\\") and line_end < len(source):  # a shell command that goes on
            at = line_end + 1
            line_end = source.find("\n", at)
            line_end = len(source) if line_end < 0 else line_end
            line = source[at:line_end]
            parts.append("\n" + _hidden(line, "", magics))
        parts.append(source[line_end : line_end + 1])
        at = line_end + 1
    return "".join(parts)


def _all_hidden(source: str, magics: list[str]) -> str:
    return re.sub(r"[^\r\n]+", lambda line: _hidden(line[0], "", magics), source)


def _hidden(line: str, code: str, magics: list[str]) -> str:
    magics.append(line)
    return f"{code}{'  ' if code else ''}# [cachelint magic {len(magics) - 1}]"


def _language(data: dict[str, Any]) -> str:
    metadata = data.get("metadata")
    if not isinstance(metadata, dict):
        return "python"
    for table, key in (("language_info", "name"), ("kernelspec", "language")):
        entry = metadata.get(table)
        if isinstance(entry, dict) and isinstance(entry.get(key), str):
            name = str(entry[key]).lower()
            return "python" if name.startswith(("python", "ipython")) else name
    return "python"


def _text_of(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise NotebookError("not a notebook: its JSON is not UTF-8", line) from error


def _source_spans(document: str) -> Iterator[tuple[int, int, Any]]:
    """Where the ``source`` of each cell stands in the JSON text, with its value; ``(-1, -1, None)`` for none."""
    cells = next(start for key, start, _, value in _last_members(document, 0) if key == "cells")
    decode = json.JSONDecoder().raw_decode
    at = _skip(document, cells + 1)
    while document[at] != "]":
        span: tuple[int, int, Any] = (-1, -1, None)
        if document[at] == "{":
            for key, start, end, value in _last_members(document, at):
                if key == "source":
                    span = (start, end, value)
        yield span
        _, at = decode(document, at)
        at = _skip(document, at)
        if document[at] == ",":
            at = _skip(document, at + 1)


def _last_members(document: str, at: int) -> list[tuple[str, int, int, Any]]:
    """The members of the object at ``at``; of several with one key the last counts, as in :mod:`json`."""
    decode = json.JSONDecoder().raw_decode
    found: dict[str, tuple[str, int, int, Any]] = {}
    at = _skip(document, _skip(document, at) + 1)
    while document[at] != "}":
        key, at = scanstring(document, at + 1, True)
        at = _skip(document, _skip(document, at) + 1)
        value, end = decode(document, at)
        found[key] = (key, at, end, value)
        at = _skip(document, end)
        if document[at] == ",":
            at = _skip(document, at + 1)
    return list(found.values())


def _skip(document: str, at: int) -> int:
    match = _SPACE.match(document, at)
    return match.end() if match else at


def _rendered(document: str, start: int, end: int, value: Any, source: str) -> str:
    """A cell's new source in the form of the old value: a string, a list on one line, or a list line by line."""
    ascii_only = document.isascii()
    if isinstance(value, str):
        return json.dumps(source, ensure_ascii=ascii_only)
    lines = re.findall(r"[^\n]*\n|[^\n]+", source)
    items = [json.dumps(line, ensure_ascii=ascii_only) for line in lines]
    old = document[start:end]
    if not items:
        return "[]"
    if "\n" not in document or ("\n" not in old and value):
        return "[" + ("," if '","' in old else ", ").join(items) + "]"
    newline = "\r\n" if "\r\n" in document else "\n"
    line_start = document.rfind("\n", 0, start) + 1
    match = _INDENT.match(document, line_start)
    outer = match[0] if match else ""
    inner = re.match(r"\[\r?\n([ \t]*)", old)
    indent = inner[1] if inner else outer + _unit(document)
    return "[" + newline + ("," + newline).join(indent + item for item in items) + newline + outer + "]"


def _unit(document: str) -> str:
    match = re.match(r"\s*\{\r?\n([ \t]+)", document)
    return match[1] if match else " "
