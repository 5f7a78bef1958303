"""What the code around a function calls things that a fix needs to name."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from cachelint.checks import FileContext
from cachelint.fix.edits import After, Before, Edit, Text
from cachelint.fix.functions.flow import Flow
from cachelint.index.module import ClassInfo, FunctionNode, ModuleInfo
from cachelint.index.project import Project, Resolved


def tensor_class(file: FileContext, flow: Flow, library: str) -> str | None:
    """The code for ``torch.Tensor`` in a function, by what the module imports; None where it imports neither the
    class nor the library."""
    return imported(file, flow, f"{library}.Tensor", library)


def imported(file: FileContext, flow: Flow, wanted: str, library: str) -> str | None:
    """The code for a member of a library in a function, None where the module imports neither of the two."""
    for statement in _imports(file.module):
        for alias in statement.names:
            name = alias.asname or alias.name.partition(".")[0]
            if name in flow.parameters or name in flow.bindings:
                continue
            found = file.project.resolve(file.module, name)
            if found is None:
                continue
            if found.module is not None and _of(found, library):  # the project is the library
                if found.binding is None:
                    return f"{name}.{wanted.rpartition('.')[2]}"
                if isinstance(found.binding, ClassInfo) and found.binding.qualname == wanted.rpartition(".")[2]:
                    return name
            if found.binding is not None or found.module is not None:
                continue
            if found.dotted == wanted:
                return name
            if found.dotted == library:
                return f"{name}.{wanted.rpartition('.')[2]}"
    return None


def _of(found: Resolved, library: str) -> bool:
    """Whether a name is the project's own package of the library's name, or a class in it."""
    assert found.module is not None
    own = found.module.name
    return own == library if found.binding is None else own.partition(".")[0] == library


def _imports(module: ModuleInfo) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that surely run: those in the module's own body, and what it tries to import."""
    for chunk in module.chunks:
        if chunk.kind == "other":
            for statement in module.statements(chunk):
                for own in statement.body if isinstance(statement, ast.Try) else (statement,):
                    if isinstance(own, (ast.Import, ast.ImportFrom)):
                        yield own


def import_of(module: ModuleInfo, name: str, above: FunctionNode, text: Text) -> Edit:
    """The edit that imports a library: among the imports of the module's own body above a function, those of the
    standard library before the others."""
    first: ast.stmt | None = None
    imports: list[ast.stmt] = []
    for chunk in module.chunks:
        for statement in module.statements(chunk):
            first = first or statement
            if isinstance(statement, (ast.Import, ast.ImportFrom)) and statement.lineno < above.lineno:
                imports.append(statement)
    line = (f"import {name}",)
    own = [s for s in imports if _is_standard(s)]
    others = [s for s in imports if s not in own]
    if name not in sys.stdlib_module_names:
        place = imports[-1] if imports else None
        return After(text.span(place), line) if place is not None else Before(text.span(first or above), line)
    plain = [s for s in own if isinstance(s, ast.Import) and s.names[0].name < name]
    if plain or own:
        before = plain[-1] if plain else None
        if before is None:
            rest = [s for s in own if not (isinstance(s, ast.ImportFrom) and s.module == "__future__")]
            return Before(text.span(rest[0]), line) if rest else After(text.span(own[-1]), ("", *line))
        return After(text.span(before), line)
    return Before(text.span(others[0] if others else first or above), line)


def _is_standard(node: ast.stmt) -> bool:
    """Whether an import is one of the standard library."""
    if isinstance(node, ast.ImportFrom):
        return not node.level and (node.module or "").partition(".")[0] in sys.stdlib_module_names
    return isinstance(node, ast.Import) and node.names[0].name.partition(".")[0] in sys.stdlib_module_names


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

    def is_local(self, name: str) -> bool:
        """Whether the function binds a name."""
        return name in self.flow.parameters or name in self.flow.bindings

    def live(self, node: ast.expr | None, receiver: str, depth: int = 0) -> bool:
        """Whether an expression may give what lies in an object: it may change before it is read again."""
        if depth > 6:
            return False
        if isinstance(node, ast.Attribute):
            return not (isinstance(node.value, ast.Name) and node.value.id == receiver)
        if isinstance(node, ast.IfExp):
            return any(self.live(arm, receiver, depth + 1) for arm in (node.body, node.orelse))
        if isinstance(node, ast.Name):
            parents = [self.flow.parents.get(bound) for bound in self.flow.bindings.get(node.id, ())]
            values = [p.value for p in parents if isinstance(p, (ast.Assign, ast.AnnAssign)) and p.value is not node]
            return any(self.live(value, receiver, depth + 1) for value in values)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not self.is_local(node.func.id):
            found = self.project.resolve(self.module, node.func.id)
            if found is not None and isinstance(found.binding, ast.FunctionDef) and found.module is not None:
                inside = Kinds(self.project, found.module, Flow(found.binding))
                values = [item.value for item in inside.flow.returns]
                return bool(values) and all(inside.live(value, "", depth + 1) for value in values)
        return False

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
