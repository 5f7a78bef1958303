"""What the code around a function calls things that a fix needs to name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from cachelint.checks import FileContext
from cachelint.fix.edits import After, Before, Edit, Text
from cachelint.fix.functions.flow import Flow
from cachelint.index.module import FunctionNode, ModuleInfo
from cachelint.index.project import Project


def tensor_class(file: FileContext, flow: Flow, library: str) -> str | None:
    """The code for ``torch.Tensor`` in a function, by what the module imports; None where it imports neither the
    class nor the library."""
    wanted = {library: f"{library}.Tensor", f"{library}.Tensor": ""}
    for statement in _imports(file.module):
        for alias in statement.names:
            name = alias.asname or alias.name.partition(".")[0]
            if name in flow.parameters or name in flow.bindings:
                continue
            found = file.project.resolve(file.module, name)
            if found is not None and found.binding is None and found.module is None and found.dotted in wanted:
                return f"{name}.Tensor" if wanted[found.dotted] else name
    return None


def _imports(module: ModuleInfo) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that surely run: those in the module's own body, and what it tries to import."""
    for chunk in module.chunks:
        if chunk.kind == "other":
            for statement in module.statements(chunk):
                for own in statement.body if isinstance(statement, ast.Try) else (statement,):
                    if isinstance(own, (ast.Import, ast.ImportFrom)):
                        yield own


def import_of(module: ModuleInfo, name: str, above: FunctionNode, text: Text) -> Edit:
    """The edit that imports a library: behind the last import of the module's own body above a function."""
    last: ast.stmt | None = None
    first: ast.stmt | None = None
    for chunk in module.chunks:
        for statement in module.statements(chunk):
            first = first or statement
            if isinstance(statement, (ast.Import, ast.ImportFrom)) and statement.lineno < above.lineno:
                last = statement
    line = (f"import {name}",)
    if last is not None:
        return After(text.span(last), line)
    return Before(text.span(first if first is not None else above), line)


@dataclass(frozen=True)
class Kinds:
    """Tells which expressions of a function surely are a list, a tuple or a dict, and nothing derived from these."""

    project: Project
    module: ModuleInfo
    flow: Flow

    def of(self, node: ast.expr | None, depth: int = 0) -> str:
        """``list``, ``tuple`` or ``dict``; empty where that is open."""
        if node is None or depth > 6:
            return ""
        for kind, classes in _LITERALS.items():
            if isinstance(node, classes):
                return kind
        if isinstance(node, ast.IfExp):
            found = {self.of(n, depth + 1) for n in (node.body, node.orelse) if not _is_none(n)}
            return found.pop() if len(found) == 1 else ""
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            return self.of(node.value, depth + 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.of(node.left, depth + 1), self.of(node.right, depth + 1)
            return left if left == right else ""
        if isinstance(node, ast.Call):
            return self.called(node, depth)
        return self.name(node.id, depth) if isinstance(node, ast.Name) else ""

    def called(self, node: ast.Call, depth: int) -> str:
        """What a call gives: of a constructor, or of a function of the project that says so."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if not name or name in self.flow.parameters or name in self.flow.bindings:
            return ""
        found = self.project.resolve(self.module, name)
        if found is None:
            return name if name in _LITERALS else ""
        function = found.binding
        if not isinstance(function, ast.FunctionDef) or found.module is None or function.decorator_list:
            return ""
        inside = Kinds(self.project, found.module, Flow(function))
        if inside.flow.generator or inside.flow.surely(set())[1] is not None:
            return ""
        kinds = {inside.of(item.value, depth + 1) for item in inside.flow.returns}
        return kinds.pop() if len(kinds) == 1 else ""

    def name(self, name: str, depth: int) -> str:
        """What a local is, whatever path bound it."""
        spec = self.flow.node.args
        bindings = self.flow.bindings.get(name, [])
        kinds: set[str] = set()
        if name in self.flow.parameters:
            packed = {arg.arg: kind for arg, kind in ((spec.vararg, "tuple"), (spec.kwarg, "dict")) if arg is not None}
            kinds.add(packed.get(name, ""))
        for node in bindings:
            parent = self.flow.parents.get(node)
            if isinstance(parent, ast.AugAssign) and parent.target is node:
                continue  # a list or a tuple stays one, or it is an error
            plain = isinstance(parent, (ast.Assign, ast.AnnAssign)) and node in (
                parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            )
            kinds.add(self.of(parent.value, depth + 1) if plain else "")  # type: ignore[union-attr]
        return kinds.pop() if len(kinds) == 1 else ""


_LITERALS: dict[str, tuple[type[ast.expr], ...]] = {
    "list": (ast.List, ast.ListComp),
    "tuple": (ast.Tuple,),
    "dict": (ast.Dict, ast.DictComp),
}


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
