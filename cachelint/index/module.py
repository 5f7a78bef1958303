"""One module of the linted project: its names, resolved lazily.

Definitions are parsed one top-level chunk at a time (see :mod:`cachelint.index.chunks`); what stands between them,
imports and constants, is parsed once as a skeleton.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from cachelint.index import chunks as _chunks
from cachelint.index.lower import parse, tree

_KERNEL: Final = re.compile(r"^@(?:\w+\.)*(?:jit|kernel|autotune|heuristics)\b", re.MULTILINE)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Import:
    """A name bound by an import: ``module`` is absolute or, with ``level`` dots, relative; ``name`` None for a module."""

    module: str
    name: str | None
    level: int


@dataclass(eq=False)
class ClassInfo:
    """A class of the project. ``scope`` holds the definitions of the function it is nested in, if any."""

    node: ast.ClassDef
    module: ModuleInfo
    qualname: str
    scope: dict[str, Binding] | None = None
    members: dict[str, list[ast.stmt]] = field(default_factory=dict)
    nested: dict[str, ClassInfo] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The bare name."""
        return self.node.name

    def method(self, name: str) -> FunctionNode | None:
        """The last definition of ``name`` in this class's own body."""
        for node in reversed(self.members.get(name, ())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return node
        return None


Binding = FunctionNode | ClassInfo | Import | ast.expr


class ModuleInfo:
    """The names that one source file defines at its top level."""

    def __init__(self, path: str, text: str, name: str) -> None:
        self.path = path
        self.name = name
        self.text = text
        self.is_package = path.endswith("__init__.py")
        self._chunks: list[_chunks.Chunk] | None = None
        self._bindings: dict[str, list[Binding]] | None = None
        self._pending: dict[str, list[_chunks.Chunk]] = {}
        self._parsed: dict[int, list[ast.stmt]] = {}
        self._whole: ast.Module | None = None
        self._line_starts: list[int] | None = None
        self._stubs: dict[int, _chunks.Chunk] = {}
        self.stored_through: dict[int, frozenset[str]] = {}
        """For a kernel's node, the parameters through which it stores: found once a process."""
        self.star_imports: list[Import] = []
        self.skeleton: list[ast.stmt] = []

    # -- parsing -----------------------------------------------------------------------------------------------------

    @property
    def chunks(self) -> list[_chunks.Chunk]:
        """The top-level statements, uncut if the text cannot be cut safely."""
        if self._chunks is None:
            self._chunks = _chunks.split(self.text)
        return self._chunks

    def statements(self, chunk: _chunks.Chunk) -> list[ast.stmt]:
        """The parsed statements of one chunk. Raises SyntaxError when the module does not parse."""
        found = self._parsed.get(chunk.start)
        if found is None:
            found = self._parse_chunk(chunk)
            self._parsed[chunk.start] = found
        return found

    def _parse_chunk(self, chunk: _chunks.Chunk) -> list[ast.stmt]:
        if self._whole is None:
            try:
                return tree("\n" * chunk.start + chunk.text, self.path).body
            except (SyntaxError, ValueError):
                self._whole = parse(self.text, self.path)
        end = chunk.start + chunk.text.count("\n") + (not chunk.text.endswith("\n"))
        return [node for node in self._whole.body if chunk.start < first_line(node) <= end]

    def kernel_stub(self, chunk: _chunks.Chunk) -> ast.stmt | None:
        """The decorators and signature of a kernel without its body: kernels are most of the text and launched only."""
        if not chunk.text.startswith("@") or not _KERNEL.search(chunk.text):
            return None
        lines = chunk.text.splitlines(keepends=True)
        head: list[str] = []
        started, depth = False, 0
        for line in lines:
            head.append(line)
            started = started or line.startswith(("def ", "async def "))
            if started:
                code = line.partition("#")[0]
                depth += code.count("(") + code.count("[") - code.count(")") - code.count("]")
                if depth == 0 and code.rstrip().endswith(":"):
                    break
        else:
            return None
        text = "\n" * chunk.start + "".join(head).rstrip().rstrip("\\") + " pass\n"
        if "#" in head[-1]:
            return None
        try:
            body = tree(text, self.path).body
        except (SyntaxError, ValueError):
            return None
        if len(body) != 1:
            return None
        self._stubs[id(body[0])] = chunk
        return body[0]

    def whole(self, node: FunctionNode) -> FunctionNode:
        """A function with its body, where :meth:`kernel_stub` left it out. Raises SyntaxError."""
        chunk = self._stubs.get(id(node))
        if chunk is None:
            return node
        for statement in self.statements(chunk):
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return statement
        return node

    def unparsed(self, node: FunctionNode) -> str:
        """The text of a kernel whose body :meth:`kernel_stub` left out, empty for other functions."""
        chunk = self._stubs.get(id(node))
        return "" if chunk is None else chunk.text

    def mentions(self, node: ast.stmt, *words: str) -> bool:
        """Whether any of the words stands in the text of a statement of this module, decorators aside."""
        text = self.text
        if not any(word in text for word in words):
            return False
        starts = self._line_starts
        if starts is None:
            if "\r" in text:
                return True  # its lines end in more than one way: too rare to be worth telling apart
            starts = self._line_starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        end = starts[min(node.end_lineno or node.lineno, len(starts) - 1)]
        start = starts[min(node.lineno, len(starts)) - 1]
        return any(text.find(word, start, end) >= 0 for word in words)

    def check_syntax(self) -> None:
        """Parse the whole module, for its error. Raises SyntaxError."""
        if self._whole is None:
            self._whole = parse(self.text, self.path)

    # -- names -------------------------------------------------------------------------------------------------------

    @property
    def bindings(self) -> dict[str, list[Binding]]:
        """Top-level names with everything that binds them outside ``def`` and ``class`` chunks."""
        if self._bindings is None:
            self._bindings = {}
            pieces, line = [], 0
            for chunk in self.chunks:
                if chunk.kind != "other":
                    self._pending.setdefault(chunk.name, []).append(chunk)
                    continue
                pieces.append("\n" * (chunk.start - line) + chunk.text)
                line = chunk.start + chunk.text.count("\n")
            text = "".join(pieces)
            try:
                body = tree(text, self.path).body
            except (SyntaxError, ValueError):
                if self._whole is None:
                    self._whole = parse(self.text, self.path)
                self._pending.clear()
                body = self._whole.body
            self.skeleton = body
            self._bind(body, self._bindings, "")
        return self._bindings

    def lookup(self, name: str) -> list[Binding]:
        """Everything that may bind ``name`` at the top level, definitions first."""
        table = self.bindings
        for chunk in self._pending.pop(name, ()):
            own: dict[str, list[Binding]] = {}
            stub = self.kernel_stub(chunk)
            self._bind(self.statements(chunk) if stub is None else [stub], own, "")
            table.setdefault(name, [])[:0] = own.get(name, [])
        return table.get(name, [])

    def _bind(self, body: list[ast.stmt], table: dict[str, list[Binding]], prefix: str) -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                table.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.ClassDef):
                table.setdefault(node.name, []).append(class_info(node, self, prefix))
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                self.bind_import(node, table)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind_target(target, node.value, table)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._bind_target(node.target, node.value, table)
            elif isinstance(node, (ast.If, ast.While)):
                self._bind(node.body, table, prefix)
                self._bind(node.orelse, table, prefix)
            elif isinstance(node, (ast.With, ast.AsyncWith, ast.For, ast.AsyncFor)):
                self._bind(node.body, table, prefix)
            elif isinstance(node, ast.Try):
                for part in (node.body, *(h.body for h in node.handlers), node.orelse, node.finalbody):
                    self._bind(part, table, prefix)

    def _bind_target(self, target: ast.expr, value: ast.expr, table: dict[str, list[Binding]]) -> None:
        if isinstance(target, ast.Name):
            table.setdefault(target.id, []).append(value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            for position, element in enumerate(target.elts):
                if same:
                    self._bind_target(element, value.elts[position], table)  # type: ignore[attr-defined]
                elif not isinstance(element, ast.Starred):
                    item = ast.Subscript(value, ast.Constant(position), ast.Load())
                    self._bind_target(element, ast.copy_location(ast.fix_missing_locations(item), value), table)

    def bind_import(self, node: ast.Import | ast.ImportFrom, table: dict[str, list[Binding]]) -> None:
        """Bind the names of one import statement in ``table``."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    table.setdefault(alias.asname, []).append(Import(alias.name, None, 0))
                else:
                    top = alias.name.partition(".")[0]
                    table.setdefault(top, []).append(Import(top, None, 0))
            return
        for alias in node.names:
            entry = Import(node.module or "", alias.name, node.level)
            if alias.name == "*":
                self.star_imports.append(entry)
            else:
                table.setdefault(alias.asname or alias.name, []).append(entry)


def first_line(node: ast.stmt) -> int:
    """The first line of a statement, decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def class_info(
    node: ast.ClassDef, module: ModuleInfo, prefix: str, scope: dict[str, Binding] | None = None
) -> ClassInfo:
    """The record of a class: its members by name, conditional ones included."""
    info = ClassInfo(node, module, f"{prefix}{node.name}", scope)
    _members(node.body, info)
    return info


def empty_class(name: str, place: str) -> ClassInfo:
    """A class that stands for one that is not here."""
    node = ast.parse(f"class {name}: ...").body[0]
    assert isinstance(node, ast.ClassDef)
    return ClassInfo(node, ModuleInfo(place, "", place), name)


def _members(body: list[ast.stmt], info: ClassInfo) -> None:
    for item in body:
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            info.members.setdefault(item.name, []).append(item)
        elif isinstance(item, ast.ClassDef):
            info.nested[item.name] = class_info(item, info.module, f"{info.qualname}.", info.scope)
        elif isinstance(item, ast.Assign):
            for target in item.targets:
                if isinstance(target, ast.Name):
                    info.members.setdefault(target.id, []).append(item)
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            info.members.setdefault(item.target.id, []).append(item)
        elif isinstance(item, ast.If):
            _members(item.body, info)
            _members(item.orelse, info)
        elif isinstance(item, ast.Try):
            _members(item.body, info)
            for handler in item.handlers:
                _members(handler.body, info)
