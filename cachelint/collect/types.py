"""Which classes and function pairs of a module have a forward and a backward, and in which dialect."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cachelint.dialects import by_name, known
from cachelint.index.chunks import Chunk
from cachelint.index.module import Binding, ClassInfo, FunctionNode, ModuleInfo, class_info
from cachelint.index.project import Project
from cachelint.index.walk import children, code_of, last_name, walk
from cachelint.infer.machine import Machine
from cachelint.settings import DialectSpec, Settings

_CLASS: Final = re.compile(r"^[ \t]*class[ \t]+\w+", re.MULTILINE)
_HEADER: Final = re.compile(r"^[ \t]*class[ \t]+(\w+)[ \t]*(?:\[[^\]]*\])?[ \t]*\(([^)]*)\)", re.MULTILINE)


@dataclass(frozen=True)
class Method:
    """A method with the class that defines it."""

    node: FunctionNode
    owner: ClassInfo | None
    module: ModuleInfo


@dataclass(frozen=True)
class Unit:
    """One type to judge: its dialect, and the methods that are its forward and backward, most derived first."""

    name: str
    line: int
    module: ModuleInfo
    dialect: DialectSpec
    receiver: str
    info: ClassInfo | None
    forward: tuple[Method, ...]
    setup: tuple[Method, ...]
    backward: tuple[Method, ...]
    operator: Method | None = None
    trainer: bool = False
    wrapper: Method | None = None
    """A ``__call__`` that keeps things on the instance around the forward that it calls."""
    native: bool = True
    """Whether the class belongs to the framework of its dialect, and not to one that merely looks like it."""
    own_read_back: tuple[str, ...] = ()
    """Attributes of ctx that hold what was saved, in a framework of its own."""

    @property
    def receiver_is_self(self) -> bool:
        """Whether state lives on the instance."""
        return self.receiver == "self"


def find(module: ModuleInfo, project: Project, settings: Settings) -> list[Unit]:
    """The types of one module, in the order of the source. Raises SyntaxError."""
    finder = _Finder(module, project, settings)
    units = list(finder.classes())
    units.extend(finder.registered())
    return sorted(units, key=lambda unit: (unit.line, unit.name))


def unit_of(info: ClassInfo, project: Project, settings: Settings) -> Unit | None:
    """The type that one class is, None when it has no forward or no backward."""
    return _Finder(info.module, project, settings).unit(info)


@lru_cache(maxsize=8)
def _wanted(
    settings: Settings,
) -> tuple[tuple[DialectSpec, ...], frozenset[str], re.Pattern[str], re.Pattern[str], frozenset[str]]:
    """The dialects; the names of their backwards; patterns of a method of theirs and of a backward; their decorators."""
    # A known base class says more than the mere names of methods.
    specs = tuple(
        sorted(known(settings), key=lambda spec: spec.recognise == "methods" and spec not in settings.dialects)
    )
    methods = {name for spec in specs for name in (*spec.forward, *spec.backward, *spec.setup)}
    backwards = frozenset(name for spec in specs for name in spec.backward)
    method, counterpart = (re.compile(rf"def[ \t]+(?:{'|'.join(sorted(names))})\b") for names in (methods, backwards))
    decorators = frozenset(d.rpartition(".")[2] for spec in specs for d in spec.decorators)
    return specs, backwards, method, counterpart, decorators


class _Finder:
    def __init__(self, module: ModuleInfo, project: Project, settings: Settings) -> None:
        self.module = module
        self.project = project
        self.settings = settings
        self.machine = Machine(project)
        self.specs, self.backwards, self.pattern, self.counterpart, self.decorators = _wanted(settings)

    # -- classes -----------------------------------------------------------------------------------------------------

    def classes(self) -> Iterator[Unit]:
        for chunk in self.module.chunks:
            if "class" not in chunk.text or not _CLASS.search(chunk.text) or not self.promising(chunk):
                continue
            for info in self.infos(chunk):
                unit = self.unit(info)
                if unit is not None:
                    yield unit

    def promising(self, chunk: Chunk) -> bool:
        """Whether a chunk may define a type: a method of some dialect, and either its counterpart or a base class."""
        if not self.pattern.search(chunk.text):
            return bool(self.decorators) and "@" in chunk.text and any(d in chunk.text for d in self.decorators)
        if self.counterpart.search(chunk.text):
            return True
        for match in _HEADER.finditer(chunk.text):
            for base in match[2].split(","):
                name = base.strip().rpartition(".")[2]
                if name and name in self.project.backward_classes(self.backwards):
                    return True
        return any(spec.recognise in ("methods", "decorator") for spec in self.settings.dialects)

    def infos(self, chunk: Chunk) -> Iterator[ClassInfo]:
        """The classes in a chunk, nested ones and those inside functions included."""
        alone = len(_CLASS.findall(chunk.text)) == 1
        for node in self.module.statements(chunk):
            if alone and isinstance(node, ast.ClassDef):
                yield self.known(node, "", None)
            else:
                yield from self.inside(node, "", None)

    def inside(self, node: ast.AST, prefix: str, scope: dict[str, Binding] | None) -> Iterator[ClassInfo]:
        """Classes at and below a node, with the names of the functions that enclose them."""
        if isinstance(node, ast.ClassDef):
            yield self.known(node, prefix, scope)
            for child in node.body:
                yield from self.inside(child, f"{prefix}{node.name}.", scope)
        elif isinstance(node, _FUNCTION):
            below = f"{prefix}{node.name}.<locals>."
            inner = dict(scope or {})
            for item in walk(node):
                if isinstance(item, ast.ClassDef):
                    inner.setdefault(item.name, class_info(item, self.module, below, inner))
                elif isinstance(item, _FUNCTION) and item is not node:
                    inner.setdefault(item.name, item)
            if any(isinstance(binding, ClassInfo) for binding in inner.values()):
                for child in node.body:
                    yield from self.inside(child, below, inner)
        elif isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            for below_it in children(node):
                yield from self.inside(below_it, prefix, scope)

    def known(self, node: ast.ClassDef, prefix: str, scope: dict[str, Binding] | None) -> ClassInfo:
        """The module's own record of a top-level class, so that there is one; a new one for the others."""
        if not prefix:
            for binding in self.module.lookup(node.name):
                if isinstance(binding, ClassInfo) and binding.node is node:
                    return binding
        return class_info(node, self.module, prefix, scope)

    def unit(self, info: ClassInfo) -> Unit | None:
        """The type that a class is, None when it has no forward or no backward."""
        order = self.machine.mro(info)
        qualified = {f"{c.module.name}.{c.qualname}" for c in order}
        outside = {self.machine.dotted_base(b, c) for c in order for b in c.node.bases} - {""}
        decorated = {_dotted(d.func if isinstance(d, ast.Call) else d) for d in info.node.decorator_list}
        names = qualified | outside
        # A name that is spelled out in full says more than a tail that several frameworks share.
        exact = {spec.name for spec in self.specs if spec.recognise == "base" and names & set(spec.bases)}
        for spec in self.specs:
            if spec.recognise == "base" and (
                spec.name not in exact if exact else not _matches(spec.bases, names, spec.name)
            ):
                continue
            if spec.recognise == "decorator" and not any(_tail_in(d, spec.decorators) for d in decorated):
                continue
            if spec.recognise == "register":
                continue
            unit = self.build(info, order, spec)
            if unit is not None:
                return unit
        return None

    def build(self, info: ClassInfo, order: list[ClassInfo], spec: DialectSpec) -> Unit | None:
        """A unit in a dialect, None when the methods are not there."""
        own = [c for c in order if not _is_base(c, spec)]
        forward = self.methods_named(own, spec.forward)
        setup = self.methods_named(own, spec.setup)
        backward = self.methods_named(own, spec.backward)
        if not forward or not backward:
            return None
        names = (*spec.forward, *spec.setup, *spec.backward)
        if not any(info.method(name) is not None for name in names):
            return None
        static = _is_static(forward[0].node) or _is_classmethod(forward[0].node)
        native = True
        own_read_back: tuple[str, ...] = ()
        if spec.recognise == "methods" and (static or _first(forward[0].node) == "ctx"):
            spec = by_name("torch-function", self.settings)
            forward = self.methods_named(own, spec.forward)
            setup = self.methods_named(own, spec.setup)
            backward = self.methods_named(own, spec.backward)
            own_read_back = self.own_read_back(spec, forward[0])
            names = (*spec.read_back, *own_read_back)
            spec = dataclasses.replace(spec, read_back=names, api=(*spec.api, *own_read_back))
            outside = {self.machine.dotted_base(base, owner) for owner in order for base in owner.node.bases}
            native = bool(outside - {"", "object", "abc.ABC", "ABC"})  # a base that is not here may be anything
        receiver = spec.receiver
        if (
            receiver == "first"
            and not static
            and not _is_static(backward[0].node)
            and _first(forward[0].node) == "self"
        ):
            receiver = "self"
        instance = receiver == "self" and spec.name in ("layer", "graph-node")
        return Unit(
            info.qualname,
            info.node.lineno,
            self.module,
            spec,
            receiver,
            info,
            forward,
            setup,
            backward,
            trainer=instance and _is_trainer(backward[0].node),
            wrapper=self.wrapper(own, spec) if instance else None,
            native=native,
            own_read_back=own_read_back,
        )

    def wrapper(self, order: list[ClassInfo], spec: DialectSpec) -> Method | None:
        """A ``__call__`` that calls forward and sets attributes: what a base class keeps for all its subclasses."""
        found = self.methods_named(order, ("__call__",)) if "__call__" in spec.entry else ()
        for method in found:
            receiver = _first(method.node)
            used = [n for n in walk(method.node) if isinstance(n, ast.Attribute) and _is_name(n.value, receiver)]
            if any(n.attr in spec.forward for n in used) and any(isinstance(n.ctx, ast.Store) for n in used):
                return method
        return None

    def own_read_back(self, spec: DialectSpec, forward: Method) -> tuple[str, ...]:
        """What the annotated class of ctx calls the saved tensors, where a project has a class of its own for it."""
        parameters = [*forward.node.args.posonlyargs, *forward.node.args.args]
        annotation = parameters[0].annotation if parameters else None
        if not isinstance(annotation, ast.Name):
            return ()
        found = self.project.resolve(forward.module, annotation.id)
        info = found.binding if found is not None else None
        if not isinstance(info, ClassInfo):
            return ()
        methods = [node for name in spec.save if (node := info.method(name)) is not None]
        stored = {
            item.attr
            for node in methods
            for item in walk(node)
            if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store)
        }
        return tuple(sorted(stored - set(spec.read_back)))

    def methods_named(self, order: list[ClassInfo], names: tuple[str, ...]) -> tuple[Method, ...]:
        """For each name, the most derived definition that is not a bare ``raise NotImplementedError``."""
        found = []
        for name in names:
            for owner in order:
                node = owner.method(name)
                if node is not None:
                    found.append(Method(node, owner, owner.module))
                    break
        return tuple(found)

    # -- registered operators ------------------------------------------------------------------------------------------

    def registered(self) -> Iterator[Unit]:
        if "register_autograd" not in self.module.text:
            return
        spec = by_name("torch-library", self.settings)
        for chunk in self.module.chunks:
            if "register_autograd" not in chunk.text:
                continue
            for statement in self.module.statements(chunk):
                scope = _functions(statement)
                for node in walk(statement):
                    if isinstance(node, ast.Call) and last_name(node.func) == "register_autograd":
                        unit = self.registered_unit(node, spec, scope)
                        if unit is not None:
                            yield unit

    def registered_unit(self, node: ast.Call, spec: DialectSpec, scope: dict[str, FunctionNode]) -> Unit | None:
        args = list(node.args)
        keywords = {k.arg: k.value for k in node.keywords if k.arg}
        operator_expr: ast.expr | None = None
        if isinstance(node.func, ast.Attribute) and not _is_library(node.func.value):
            operator_expr = node.func.value
        elif args:
            operator_expr = args.pop(0)
        else:
            operator_expr = keywords.get("op")
        backward = self.function(args[0] if args else keywords.get("backward"), scope)
        setup = self.function(keywords.get("setup_context", keywords.get("setup_context_fn")), scope)
        if backward is None:
            return None
        operator, name = self.operator(operator_expr, scope)
        return Unit(
            name,
            node.lineno,
            self.module,
            spec,
            "first",
            None,
            (operator,) if operator is not None else (),
            (setup,) if setup is not None else (),
            (backward,),
            operator,
        )

    def function(self, node: ast.expr | None, scope: dict[str, FunctionNode]) -> Method | None:
        """The function that an expression names."""
        if not isinstance(node, ast.Name):
            return None
        if node.id in scope:
            return Method(scope[node.id], None, self.module)
        found = self.project.resolve(self.module, node.id)
        if found is not None and found.module is not None and isinstance(found.binding, _FUNCTION):
            return Method(found.binding, None, found.module)
        return None

    def operator(self, node: ast.expr | None, scope: dict[str, FunctionNode]) -> tuple[Method | None, str]:
        """The operator's implementation, if it is a function here, and its name."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self.implementation(node.value), node.value
        method = self.function(node, scope)
        if method is not None:
            for decorator in method.node.decorator_list:
                if isinstance(decorator, ast.Call) and decorator.args and isinstance(decorator.args[0], ast.Constant):
                    if isinstance(decorator.args[0].value, str) and "::" in decorator.args[0].value:
                        return method, decorator.args[0].value
            return method, method.node.name
        return None, code_of(node) if node is not None else "register_autograd"

    def implementation(self, name: str) -> Method | None:
        """The function that ``@custom_op(name)`` decorates."""
        for chunk in self.module.chunks:
            if chunk.kind == "def" and f'"{name}"' in chunk.text.replace("'", '"') and chunk.text.startswith("@"):
                for node in self.module.statements(chunk):
                    if isinstance(node, _FUNCTION):
                        return Method(node, None, self.module)
        return None


_FUNCTION: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


def _functions(statement: ast.stmt) -> dict[str, FunctionNode]:
    return {node.name: node for node in walk(statement) if isinstance(node, _FUNCTION)}


def _matches(bases: tuple[str, ...], names: set[str], dialect: str) -> bool:
    for name in names:
        if name in bases:
            return True
        # An unresolved import still shows what it means by its tail: autograd.Function, FunctionNode.
        tail = ".".join(name.split(".")[-2:])
        if any(base.endswith(f".{tail}") for base in bases) and "." in name:
            return True
        if dialect == "torch-function" and name.endswith("autograd.Function"):
            return True
    return False


def _is_base(info: ClassInfo, spec: DialectSpec) -> bool:
    return f"{info.module.name}.{info.qualname}" in spec.bases


def _tail_in(name: str, wanted: tuple[str, ...]) -> bool:
    return any(name == w or name.endswith(f".{w}") or w.endswith(f".{name}") for w in wanted)


def _is_static(node: FunctionNode) -> bool:
    return any(last_name(d) == "staticmethod" for d in node.decorator_list)


def _is_classmethod(node: FunctionNode) -> bool:
    return any(last_name(d) == "classmethod" for d in node.decorator_list)


def _first(node: FunctionNode) -> str:
    parameters = [*node.args.posonlyargs, *node.args.args]
    return parameters[0].arg if parameters else ""


def _is_trainer(node: FunctionNode) -> bool:
    """A backward without a gradient, or one that hands the work to autograd."""
    parameters = [*node.args.posonlyargs, *node.args.args][1:]
    if not parameters and node.args.vararg is None:
        return True
    calls = [item for item in walk(node) if isinstance(item, ast.Call)]
    own = {p.arg for p in parameters}
    runs_autograd = any(
        (
            isinstance(c.func, ast.Attribute)
            and c.func.attr == "backward"
            and not (isinstance(c.func.value, ast.Attribute) and _is_self(c.func.value.value) and _passes(c, own))
            and (
                (isinstance(c.func.value, ast.Name) and c.func.value.id in own)
                or not c.args
                or last_name(c.func.value) in ("autograd", "engine", "optimizer", "scaler", "model", "accelerator")
            )
        )
        or _dotted(c.func) in ("torch.autograd.grad", "autograd.grad", "torch.autograd.backward")
        for c in calls
    )
    returns = any(isinstance(item, ast.Return) and item.value is not None for item in walk(node))
    return runs_autograd and (not returns or bool(own & {"loss", "losses"}))


def _passes(call: ast.Call, names: set[str]) -> bool:
    return any(isinstance(a, ast.Name) and a.id in names for a in call.args)


def _is_self(node: ast.expr) -> bool:
    return _is_name(node, "self")


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_library(node: ast.expr) -> bool:
    return last_name(node) in ("library", "Library")


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
