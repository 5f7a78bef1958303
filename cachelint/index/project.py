"""The linted project as one place to look names up: modules by dotted name, class headers, callers."""

from __future__ import annotations

import ast
import os
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, TypeVar

from cachelint.index.module import Binding, ClassInfo, Import, ModuleInfo

# Patterns begin with a literal, which the search can jump to; what stands before it on the line is looked at after.
_HEADER: Final = re.compile(rb"class[ \t]+(\w+)[ \t]*\(([^)]*)\)")
_CLASS: Final = re.compile(rb"class[ \t]+(\w+)")
_APPLY: Final = re.compile(rb"\.\s*apply\b")
_DIRECT: Final = re.compile(rb"\.\s*(?:forward|setup_context|backward|vjp|jvp)\s*\(")
_WORD: Final = re.compile(rb"(\w+)\s*$")
_APPLIED: Final = re.compile(rb"(\w+)\s*(\(\s*\)\s*)?$")
"""The name of a class before ``.apply``; old code makes an object of it first."""
_MAX_HOPS: Final = 8
_T = TypeVar("_T")
_INSTALLED: Final = sys.stdlib_module_names | frozenset(
    "torch torchvision torchaudio numpy scipy triton jax cupy chainer paddle tensorflow mxnet warp tilelang".split()
)
"""Modules that are found where Python's own are, unless a script's folder has one of the name."""
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ClassInfo)


@dataclass(frozen=True)
class Resolved:
    """What a name stands for: a project definition with its module, or the dotted name of something outside."""

    binding: Binding | None
    module: ModuleInfo | None
    dotted: str = ""


class Project:
    """All Python files of one project. ``read`` gives a file's text or None where it cannot be read.

    ``raw`` gives the bytes, for the searches that come before any parse. Nothing is read before it is needed.
    """

    def __init__(
        self,
        root: str,
        files: Iterable[str],
        read: Callable[[str], str | None],
        raw: Callable[[str], bytes | None] | None = None,
    ) -> None:
        self.root = os.path.abspath(root)
        self.files = list(files)
        self._set = set(self.files)
        self._read = read
        self._raw = raw or (lambda path: (read(path) or "").encode("utf-8", "replace"))
        self._modules: dict[str, ModuleInfo | None] = {}
        # What is remembered comes with the paths that finding it used and missed: every file that asks rests on them.
        self._resolved: dict[tuple[str, str], tuple[Resolved | None, frozenset[str], frozenset[str]]] = {}
        self._paths: dict[tuple[str, str], tuple[str | None, frozenset[str]]] = {}
        self._apply_names: dict[bytes, list[str]] | None = None
        self._direct: dict[bytes, list[tuple[str, int]]] | None = None
        self._headers: dict[str, list[tuple[str, tuple[str, ...]]]] | None = None
        self._backward: frozenset[str] | None = None
        self.type_tests: dict[int, frozenset[str]] = {}
        """For a function's node, the names whose type it tests: asked once a process, whoever calls it."""
        self.init_assignments: dict[int, dict[str, list[ast.Assign | ast.AnnAssign | ast.Call]]] = {}
        """For a constructor's node, its statements by the attribute that they set."""
        self.records: dict[int, tuple[dict[str, tuple[int, frozenset[str]]], frozenset[str], frozenset[str]]] = {}
        """For a record's node, its plain fields, with the paths that finding them used and missed."""
        self._blob: tuple[bytes, list[int]] | None = None
        self._once: dict[Hashable, object] = {}
        self.used: set[str] = set()
        self.missed: set[str] = set()

    # -- files -------------------------------------------------------------------------------------------------------

    def raw(self, path: str) -> bytes:
        """The bytes of a file, empty where it cannot be read."""
        return self._raw(path) or b""

    def module(self, path: str) -> ModuleInfo | None:
        """The module at ``path``, or None where it cannot be read. The path counts as used."""
        self.used.add(path)
        if path not in self._modules:
            text = self._read(path)
            self._modules[path] = None if text is None else ModuleInfo(path, text, self.dotted(path))
        return self._modules[path]

    def add(self, module: ModuleInfo) -> None:
        """Put a module that does not come from a file of the list (standard input, a notebook) in its place."""
        self._modules[module.path] = module
        self._set.add(module.path)
        self._resolved.clear()

    def replace(self, module: ModuleInfo) -> None:
        """Put a new text of a file in the place of the old one; what was resolved through the old one is forgotten."""
        self._backward = None
        self._blob = None
        self._once.clear()
        for known in (self.type_tests, self.init_assignments, self.records):
            known.clear()  # their keys are nodes of the old text, whose numbers may come again
        self.add(module)

    def dotted(self, path: str) -> str:
        """The dotted name of a file from its topmost package down."""
        folder, base = os.path.split(path)
        parts = [] if base == "__init__.py" else [os.path.splitext(base)[0]]
        while f"{folder}{os.sep}__init__.py" in self._set:
            folder, base = os.path.split(folder)
            parts.append(base)
        return ".".join(reversed(parts))

    # -- imports -----------------------------------------------------------------------------------------------------

    def find_module(self, dotted: str, importer: str, level: int = 0) -> str | None:
        """The path of the module that ``importer`` means, or None when it lies outside the project."""
        folder = importer.rpartition(os.sep)[0]
        key = (f"{'.' * level}{dotted}", folder)
        if key not in self._paths:
            outer, self.missed = self.missed, set()
            path = self._find(dotted, folder, level)
            self._paths[key] = (path, frozenset(self.missed))
            self.missed = outer
        path, missed = self._paths[key]
        self.missed |= missed
        return path

    def _find(self, dotted: str, folder: str, level: int) -> str | None:
        tail = dotted.replace(".", os.sep)
        if level:
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            return self._at(folder, tail)
        shadowed = dotted.partition(".")[0] in _INSTALLED
        while True:
            found = self._installed_or_at(folder, tail, shadowed)
            if found:
                return found
            if folder == self.root or len(folder) <= len(self.root):
                break
            folder = folder.rpartition(os.sep)[0]
        if self._is_own_name(dotted.partition(".")[0]):
            found = self._at(os.path.dirname(self.root), tail)
            if found:
                return found
        for extra in ("src", "lib", "python"):
            found = self._installed_or_at(os.path.join(self.root, extra), tail, shadowed)
            if found:
                return found
        return None

    def _is_own_name(self, name: str) -> bool:
        """Whether the modules of the root import one another by this name: that of the root, which is a package itself."""
        if name != os.path.basename(self.root) or f"{self.root}{os.sep}__init__.py" not in self._set:
            return False
        # Below a package further up, the first name of an import is not the root's.
        return not os.path.exists(os.path.join(os.path.dirname(self.root), "__init__.py"))

    def _installed_or_at(self, folder: str, tail: str, shadowed: bool) -> str | None:
        """Inside a package, ``import torch`` means the library, whatever ``torch`` the package has itself."""
        return None if shadowed and f"{folder}{os.sep}__init__.py" in self._set else self._at(folder, tail)

    def _at(self, folder: str, tail: str) -> str | None:
        base = f"{folder.rstrip(os.sep)}{os.sep}{tail}" if tail else folder
        for candidate in (f"{base}.py", f"{base}{os.sep}__init__.py"):
            if candidate in self._set:
                return candidate
        self.missed.add(f"{base}.py")
        return None

    # -- names -------------------------------------------------------------------------------------------------------

    def resolve(self, module: ModuleInfo, name: str) -> Resolved | None:
        """What ``name`` means at the top level of ``module``; imports and re-exports are followed. None: not bound."""
        key = (module.path, name)
        known = self._resolved.get(key)
        if known is not None:
            found, used, missed = known
            if used:
                self.used |= used
            if missed:
                self.missed |= missed
            return found
        self._resolved[key] = (Resolved(None, None, ""), frozenset(), frozenset())  # a cycle of re-exports ends here
        outer_used, outer_missed = self.used, self.missed
        self.used, self.missed = set(), set()
        try:
            result = self._resolve(module, name, 0)
            if result is not None and result.module is not None:
                self.used.add(result.module.path)
            self._resolved[key] = (result, frozenset(self.used), frozenset(self.missed))
        except BaseException:
            del self._resolved[key]
            raise
        finally:
            self.used |= outer_used
            self.missed |= outer_missed
        return result

    def _resolve(self, module: ModuleInfo, name: str, hops: int) -> Resolved | None:
        try:
            bindings = module.lookup(name)
        except SyntaxError:
            return None
        best: Resolved | None = None
        for binding in bindings:
            found = self.follow(module, binding, hops) if isinstance(binding, Import) else Resolved(binding, module)
            if found is None:
                continue
            if isinstance(found.binding, _DEFINITIONS):
                if best is not None and best.binding is None and best.module is None and len(bindings) > 1:
                    continue  # a stub for a library that could not be imported
                return found
            if (
                best is None
                or _is_none(best.binding)
                or (best.binding is None and found.binding is not None and not _is_library(best))
            ):
                best = found
        if best is None and hops < _MAX_HOPS:
            for star in module.star_imports:
                path = self.find_module(star.module, module.path, star.level)
                target = self.module(path) if path else None
                if target is not None and target is not module:
                    best = self._resolve(target, name, hops + 1)
                    if best is not None:
                        break
        return best

    def follow(self, module: ModuleInfo, entry: Import, hops: int = 0) -> Resolved | None:
        """What an import brings: a module of the project, a definition in one, or a dotted name outside."""
        if entry.name is None:
            path = self.find_module(entry.module, module.path)
            if path:
                return Resolved(None, self.module(path), entry.module)
            return Resolved(None, None, entry.module)
        path = self.find_module(entry.module, module.path, entry.level)
        target = self.module(path) if path else None
        if target is not None:
            if hops < _MAX_HOPS:
                found = self._resolve(target, entry.name, hops + 1)
                if found is not None:
                    return found
            below = self.find_module(entry.name, target.path, 1) if target.is_package else None
            if below:
                return Resolved(None, self.module(below), f"{entry.module}.{entry.name}")
            return Resolved(None, None, f"{entry.module}.{entry.name}".lstrip("."))
        below = self.find_module(
            f"{entry.module}.{entry.name}" if entry.module else entry.name, module.path, entry.level
        )
        if below:
            return Resolved(None, self.module(below), f"{entry.module}.{entry.name}")
        return Resolved(None, None, f"{entry.module}.{entry.name}".lstrip("."))

    def member(self, module: ModuleInfo, name: str) -> Resolved | None:
        """``module.name``: a definition, or a submodule."""
        found = self.resolve(module, name)
        if found is not None:
            return found
        below = self.find_module(name, module.path, 1) if module.is_package else None
        return Resolved(None, self.module(below), name) if below else None

    # -- project-wide facts --------------------------------------------------------------------------------------------

    @property
    def headers(self) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
        """Class name -> (path, bare base names) of every class header in the project, read off the bytes."""
        if self._headers is None:
            table: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
            for path in self.files:
                data = self.raw(path)
                if b"class " not in data:
                    continue
                for match in _HEADER.finditer(data):
                    if not _starts_line(data, match.start()):
                        continue
                    table.setdefault(match[1].decode(), []).append((path, _bases(match[2])))
            self._headers = table
        return self._headers

    def backward_classes(self, methods: frozenset[str]) -> frozenset[str]:
        """Bare names of classes that have a backward of their own or of a base class, by headers alone."""
        if self._backward is None:
            own: set[str] = set()
            names = b"|".join(sorted(name.encode() for name in methods))
            method = re.compile(rb"def[ \t]+(?:" + names + rb")\b")
            for path in self.files:
                data = self.raw(path)
                if b"backward" not in data and b"vjp" not in data:
                    continue
                heads = [(m.start(), m[1]) for m in _CLASS.finditer(data) if _starts_line(data, m.start())]
                starts = [start for start, _ in heads]
                for match in method.finditer(data):
                    before = bisect_right(starts, match.start())
                    if before:
                        own.add(heads[before - 1][1].decode())
            derived: dict[str, list[str]] = {}
            for name, places in self.headers.items():
                for _, bases in places:
                    for base in bases:
                        derived.setdefault(base, []).append(name)
            todo = list(own)
            while todo:
                for name in derived.get(todo.pop(), ()):
                    if name not in own:
                        own.add(name)
                        todo.append(name)
            self._backward = frozenset(own)
        return self._backward

    def _joined(self) -> tuple[bytes, list[int]]:
        """The bytes of all files behind one another, and where each ends: one search goes through them all."""
        if self._blob is None:
            parts = [self.raw(path) + b"\0" for path in self.files]
            self._blob = b"".join(parts), list(accumulate(map(len, parts)))
        return self._blob

    def once(self, question: Hashable, answer: Callable[[], _T]) -> _T:
        """What a search through the whole project brings, asked once a process. The question names the search."""
        if question not in self._once:
            self._once[question] = answer()
        return self._once[question]  # type: ignore[return-value]

    def mentioning(self, *words: bytes) -> list[str]:
        """The files whose bytes hold any of the words, searched once a process."""
        return self.once(words, lambda: self._holding(words))

    def _holding(self, words: tuple[bytes, ...]) -> list[str]:
        blob, ends = self._joined()
        hits: set[int] = set()
        for word in words:
            at = blob.find(word)
            while at >= 0:
                number = bisect_right(ends, at)
                hits.add(number)
                at = blob.find(word, ends[number])
        return [self.files[number] for number in sorted(hits)]

    def apply_files(self, name: str) -> list[str]:
        """Files in which ``name.apply`` stands, in the order of the file list; with ``name()``, ``name().apply``."""
        if self._apply_names is None:
            table: dict[bytes, list[str]] = {}
            for path in self.files:
                data = self.raw(path)
                if b".apply" in data:
                    names = set()
                    for word in _before(_APPLY, _APPLIED, data):
                        names.add(word[1] + b"()" if word[2] else word[1])
                    for found in names:
                        table.setdefault(found, []).append(path)
            self._apply_names = table
        return self._apply_names.get(name.encode(), [])

    def direct_calls(self, name: str) -> list[tuple[str, int]]:
        """Where ``name.forward(…)``, ``name.backward(…)`` or their like stand: the path and the position in its bytes."""
        if self._direct is None:
            self._direct = {}
            for path in self.files:
                data = self.raw(path)
                for word in _before(_DIRECT, _WORD, data):
                    if word[1] != b"self":
                        self._direct.setdefault(word[1], []).append((path, word.start()))
        return self._direct.get(name.encode(), [])


def _before(attribute: re.Pattern[bytes], owner: re.Pattern[bytes], data: bytes) -> Iterator[re.Match[bytes]]:
    """Whose attribute it is, wherever an attribute stands that the first pattern finds."""
    for match in attribute.finditer(data):
        found = owner.search(data, max(0, match.start() - 80), match.start())
        if found:
            yield found


def _starts_line(data: bytes, position: int) -> bool:
    return not data[data.rfind(b"\n", 0, position) + 1 : position].strip()


def _bases(text: bytes) -> tuple[str, ...]:
    names = []
    for part in text.decode("utf-8", "replace").split(","):
        word = part.split("=")[0].strip().split("[")[0].rpartition(".")[2]
        if word.isidentifier():
            names.append(word)
    return tuple(names)


def _is_library(found: Resolved) -> bool:
    """Whether a name is an outside library as a whole: what stands in for it when it is missing says nothing."""
    return found.module is None and "." not in found.dotted


def _is_none(binding: Binding | None) -> bool:
    return isinstance(binding, ast.Constant) and binding.value is None
