"""Which expressions on arrays of numpy or cupy are pure and cheap, and which functions of the project are."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from cachelint.fix.functions.flow import Flow
from cachelint.fix.functions.slices import NoSlice
from cachelint.fix.nodes.blocks import Blocks, outputs
from cachelint.fix.nodes.memory import is_array_module, shared
from cachelint.index.module import FunctionNode, ModuleInfo
from cachelint.index.project import Project
from cachelint.index.walk import code_of, last_name, walk
from cachelint.infer.optable import operators

_PURE = frozenset(("alias", "cast", "elementwise", "rowstat", "constant", "host_value"))
_COPIES = frozenset(("numpy.copy",))
_HOST_CALLS = frozenset(
    (
        "int",
        "float",
        "bool",
        "len",
        "min",
        "max",
        "abs",
        "round",
        "tuple",
        "list",
        "range",
        "zip",
        "enumerate",
        "isinstance",
    )
)
_HOST_NAMES = frozenset(("Ellipsis", "slice"))
_HOST_LIBRARY = frozenset(("six.moves.range", "six.moves.zip"))
_METHODS = frozenset(
    "astype sum mean var std max min any all reshape ravel transpose copy squeeze".split(),
)
_MODULES = ("numpy.", "cupy.")
_CUPY = "chainer.backends.cuda.cupy."
_HELPERS = frozenset(("chainer.utils.force_array",))
_KERNELS = frozenset(("chainer.cuda.elementwise", "chainer.backends.cuda.elementwise"))
_DEPTH = 4
"""How many functions deep a helper is followed."""


@dataclass
class Pure:
    """Looks at the expressions of one function. A subclass says what its names mean."""

    flow: Flow
    module: ModuleInfo
    project: Project
    dotted: Mapping[str, str]
    taken: frozenset[str] = frozenset()
    """The names that the code would not mean the module's by, where it is to run."""
    depth: int = 0
    modules: frozenset[str] = frozenset()
    """The parameters that are array modules."""
    bound: set[str] = field(default_factory=set)
    """The targets of the comprehensions and loops around what is looked at."""

    def name(self, node: ast.Name, at: ast.stmt) -> None:
        """Look at a name. Raises NoSlice."""
        raise NotImplementedError

    def attribute_of_receiver(self, node: ast.Attribute, at: ast.stmt) -> bool:
        """Whether an attribute is one of the receiver; looks at it. Raises NoSlice."""
        return False

    def input(self, node: ast.expr, at: ast.stmt) -> bool:
        """Whether an expression is an input."""
        return False

    def visit(self, node: ast.expr | None, at: ast.stmt) -> None:
        """Check an expression as it stands in a statement. Raises NoSlice."""
        if node is None or isinstance(node, ast.Constant) or self.input(node, at):
            return
        if isinstance(node, ast.Name):
            if node.id not in self.bound:
                self.name(node, at)
        elif isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.MatMult):
                raise NoSlice("it is a matrix product")
            self.visit(node.left, at)
            self.visit(node.right, at)
        elif isinstance(node, (ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Tuple, ast.List, ast.Slice, ast.IfExp)):
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.expr):
                    self.visit(part, at)
        elif isinstance(node, ast.Subscript):
            self.visit(node.slice, at)
            self.visit(node.value, at)
        elif isinstance(node, ast.Attribute):
            self.attribute(node, at)
        elif isinstance(node, ast.Call):
            self.call(node, at)
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            self.comprehension(node, at)
        else:
            raise NoSlice(f"`{code_of(node)[:40]}` is not a plain array operation")

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp, at: ast.stmt) -> None:
        """A list built from something that is pure."""
        outer = set(self.bound)
        for part in node.generators:
            self.visit(part.iter, at)
            self.bound |= {n.id for n in walk(part.target) if isinstance(n, ast.Name)}
            for test in part.ifs:
                self.visit(test, at)
        self.visit(node.elt, at)
        self.bound = outer

    def attribute(self, node: ast.Attribute, at: ast.stmt) -> None:
        """An attribute: of the receiver, of a library, of the module of an array, or of an array."""
        if self.attribute_of_receiver(node, at):
            return
        if isinstance(node.value, ast.Name) and self.is_module(node.value.id):
            self.visit(node.value, at)
            return
        dotted = self.library(node)
        if dotted is not None:
            if f"{dotted}.".startswith(_MODULES):
                return
            raise NoSlice(f"`{dotted}` may be something else in backward")
        table = operators()
        known = table.host_attrs | {"shape", "dtype", "device", "ndim", "size"}
        if node.attr in known or node.attr in table.alias_attrs - {"data"}:
            self.visit(node.value, at)
            return
        raise NoSlice(f"it reads `{code_of(node)[:40]}`")

    def call(self, node: ast.Call, at: ast.stmt) -> None:
        """A call of something pure."""
        if is_array_module(node):
            return
        if any(isinstance(arg, ast.Starred) for arg in node.args) or any(k.arg is None for k in node.keywords):
            raise NoSlice("arguments are unpacked")
        if any(k.arg == "out" for k in node.keywords):
            raise NoSlice("it writes into a buffer")
        if outputs(node, self.library(node.func) is None):
            raise NoSlice("it writes into a buffer")
        func = node.func
        if self.kernel(node, at):
            return
        if isinstance(func, ast.Name) and (self.host_call(func.id) or self.pure_function(func.id, node)):
            pass
        elif (dotted := self.library(func)) is not None:
            if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and self.is_module(func.value.id):
                self.visit(func.value, at)
            cheap = dotted.startswith(_MODULES) and operators().category(dotted) in _PURE
            if not cheap and dotted not in _COPIES | _HELPERS | _HOST_LIBRARY:
                raise NoSlice(f"`{dotted}` is not a cheap array operation of the table")
        elif isinstance(func, ast.Attribute) and (
            func.attr in _METHODS or (func.attr == "type" and last_name(func.value) == "dtype")
        ):
            self.visit(func.value, at)
        else:
            raise NoSlice(f"it calls `{code_of(func)[:40]}`")
        types = node.args[1:] if isinstance(func, ast.Name) and func.id == "isinstance" else []
        for arg in (*node.args, *(k.value for k in node.keywords)):
            if arg not in types or self.library(arg) is None:
                self.visit(arg, at)

    def host_call(self, name: str) -> bool:
        """Whether a name is a builtin function that changes nothing."""
        return name in _HOST_CALLS and self.free(name) and name not in self.dotted

    def lazy(self, value: ast.expr) -> bool:
        """Whether a value may be something that is used up by whoever looks at it: a generator, ``zip(x, y)``."""
        if isinstance(value, ast.GeneratorExp):
            return True
        if isinstance(value, (ast.Tuple, ast.List)):
            return any(self.lazy(part) for part in value.elts)
        if isinstance(value, ast.IfExp):
            return self.lazy(value.body) or self.lazy(value.orelse)
        if not isinstance(value, ast.Call):
            return False
        if isinstance(value.func, ast.Name) and not self.host_call(value.func.id):
            found = self.function(value.func.id)
            made = [n.value for n in walk(found[1]) if isinstance(n, ast.Return) and n.value] if found else []
            plain = (ast.BinOp, ast.Compare, ast.UnaryOp, ast.Subscript, ast.Name, ast.Attribute, ast.Constant)
            return not all(isinstance(value, plain) or self.array_call(value) for value in made)
        return last_name(value.func) in ("zip", "enumerate")

    def array_call(self, value: ast.expr) -> bool:
        """Whether a value is what a method or a function of a library gives."""
        return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)

    # -- functions and kernels ---------------------------------------------------------------------------------------

    def pure_function(self, name: str, node: ast.Call) -> bool:
        """Whether a name is a function of the module's that only makes arrays from its arguments."""
        found = self.function(name)
        if found is None:
            return False
        module, function = found
        spec = function.args
        if self.depth >= _DEPTH or spec.vararg or spec.kwarg or function.decorator_list:
            return False
        names = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
        pairs = [*zip(names, node.args, strict=False), *((k.arg or "", k.value) for k in node.keywords)]
        modules = frozenset(own for own, arg in pairs if isinstance(arg, ast.Name) and self.is_module(arg.id))
        modules |= {own for own, arg in pairs if self.library(arg) in ("numpy", "cupy")}
        return pure_body(function, module, self.project, self.depth + 1, modules)

    def function(self, name: str) -> tuple[ModuleInfo, FunctionNode] | None:
        """The function of the project that a name means."""
        if not self.free(name) or self.project is None:
            return None
        found = self.project.resolve(self.module, name)
        if found is None or found.module is None or not isinstance(found.binding, ast.FunctionDef):
            return None
        return found.module, found.binding

    def kernel(self, node: ast.Call, at: ast.stmt) -> bool:
        """Whether a call is that of an elementwise kernel with new arrays for its outputs; looks at its arguments."""
        maker: ast.expr = node.func
        if not isinstance(maker, ast.Call):
            return False
        if isinstance(maker.func, ast.Name) and not maker.args and not maker.keywords:
            found = self.function(maker.func.id)
            body = found[1].body if found is not None and found[0] is self.module else []
            last = body[-1] if body else None
            if len(body) != 1 or not isinstance(last, ast.Return) or not isinstance(last.value, ast.Call):
                return False
            maker = last.value
        assert isinstance(maker, ast.Call)
        texts = [arg.value for arg in maker.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        head, dot, tail = code_of(maker.func).partition(".")
        meant = dotted_names(self.project, self.module, frozenset((head,))).get(head, "") if self.free(head) else ""
        if f"{meant}{dot}{tail}" not in _KERNELS or len(texts) != len(maker.args) or len(texts) < 3 or maker.keywords:
            return False
        if node.keywords or "atomic" in texts[2]:
            return False
        count = len(texts[0].split(","))
        for arg in node.args[count:]:
            copied = isinstance(arg, ast.Call) and isinstance(arg.func, ast.Attribute) and arg.func.attr == "copy"
            if not copied:
                raise NoSlice("a kernel fills one of its arguments")
        for arg in node.args:
            self.visit(arg, at)
        return True

    def followed(self, func: ast.expr) -> bool:
        """Whether a function that is called for its effects is known to have none on its arguments, or is one of the
        project's, whose changes are logged."""
        if isinstance(func, ast.Name):
            return func.id == "print" or self.function(func.id) is not None
        return False

    def writes(self, func: ast.expr) -> bool:
        """Whether a function of the project writes into arrays that it names by their place alone."""
        found = self.function(func.id) if isinstance(func, ast.Name) else None
        if found is None:
            return False
        module, function = found
        calls = [node for node in walk(function) if isinstance(node, ast.Call)]
        heads = {n.id for call in calls for n in walk(call.func) if isinstance(n, ast.Name)}
        dotted = dotted_names(self.project, module, frozenset(heads))
        names = module_parameters(function)
        for call in calls:
            root = code_of(call.func).partition(".")[0]
            if outputs(call, root not in dotted and root not in names and root != "xp"):
                return True
        return False

    # -- names -------------------------------------------------------------------------------------------------------

    def free(self, name: str) -> bool:
        """Whether a name means what the module binds, here and where the code is to run."""
        return (
            name not in self.flow.parameters
            and name not in self.flow.bindings
            and name not in self.taken
            and name not in self.bound
        )

    def constant(self, name: str) -> bool:
        """Whether a name is a builtin, or something of numpy's, here and where the code is to run."""
        return self.free(name) and (
            f"{self.dotted.get(name, '')}.".startswith(_MODULES)
            or (name in _HOST_NAMES | _HOST_CALLS and name not in self.dotted)
        )

    def is_module(self, name: str) -> bool:
        """Whether a local is the module of an array, and nothing else."""
        if name in self.modules and name not in self.flow.bindings:
            return True
        bound = self.flow.bindings.get(name, [])
        parent = self.flow.parents.get(bound[0]) if len(bound) == 1 else None
        return isinstance(parent, ast.Assign) and parent.targets == bound and is_array_module(parent.value)

    def library(self, node: ast.expr) -> str | None:
        """The dotted name of something in a library; ``xp.exp`` is numpy's."""
        root: ast.expr = node
        parts: list[str] = []
        while isinstance(root, ast.Attribute):
            parts.append(root.attr)
            root = root.value
        if not isinstance(root, ast.Name):
            return None
        if parts and self.is_module(root.id):
            return ".".join(["numpy", *reversed(parts)])
        head = self.dotted.get(root.id) if self.free(root.id) else None
        if head is None:
            return None
        whole = ".".join([head, *reversed(parts)])
        return whole.removeprefix("chainer.backends.cuda.") if f"{whole}.".startswith(_CUPY) else whole


def in_place(name: str) -> bool:
    """Whether a function of the table changes its first argument."""
    return operators().category(name) == "inplace"


def dotted_names(project: Project, module: ModuleInfo, names: frozenset[str]) -> dict[str, str]:
    """What names of a module mean outside it, or in which module of the project."""
    dotted: dict[str, str] = {}
    for name in names:
        found = project.resolve(module, name)
        if found is None:
            continue
        if found.module is None:
            dotted[name] = found.dotted
        elif found.binding is None:
            dotted[name] = project.dotted(found.module.path)
        elif isinstance(found.binding, ast.FunctionDef):
            dotted[name] = f"{project.dotted(found.module.path)}.{name}"
    return dotted


class _Body(Pure):
    """A function that is given arrays and makes others."""

    def name(self, node: ast.Name, at: ast.stmt) -> None:
        """A parameter, a local, a library."""
        local = node.id in self.flow.parameters or node.id in self.flow.bindings
        if not local and not self.constant(node.id):
            raise NoSlice(f"`{node.id}` is not one of the function's own values")


def pure_body(
    function: FunctionNode, module: ModuleInfo, project: Project, depth: int, modules: frozenset[str]
) -> bool:
    """Whether a function does nothing but make arrays from its arguments; those it changes are its own."""
    flow = Flow(function)
    if flow.generator or any(isinstance(n, (ast.Global, ast.Nonlocal)) for n in walk(function)):
        return False
    looker = _Body(flow, module, project, dotted_names(project, module, flow.used), frozenset(), depth, modules)
    blocks = Blocks(flow, "", looker.library, in_place, looker.followed, looker.writes)
    own = _own(flow, blocks)
    try:
        return all(_pure_statement(item, looker, blocks, own) for item in function.body)
    except NoSlice:
        return False


def _own(flow: Flow, blocks: Blocks) -> set[str]:
    """The locals of a function that share no memory with its arguments."""
    values: dict[str, list[ast.expr]] = {}
    for name, bound in flow.bindings.items():
        pairs = [(node, flow.statement(node)) for node in bound]
        pairs = [(node, item) for node, item in pairs if not isinstance(item, ast.AugAssign)]
        plain = all(isinstance(item, ast.Assign) and item.targets == [node] for node, item in pairs)
        if name not in flow.parameters and pairs and plain:
            values[name] = [item.value for _, item in pairs if isinstance(item, ast.Assign)]
    while True:
        own = {name for name, made in values.items() if all(shared(value, blocks) <= set(values) for value in made)}
        if len(own) == len(values):
            return own
        values = {name: values[name] for name in own}


def module_parameters(function: FunctionNode) -> frozenset[str]:
    """The parameters that a function uses as array modules are used, and in no other way."""
    spec, flow = function.args, Flow(function)
    names = {arg.arg for arg in (*spec.posonlyargs, *spec.args)} - set(flow.bindings)
    table = operators()
    for node in walk(function):
        if isinstance(node, ast.Name) and node.id in names:
            above = flow.parents.get(node)
            member = isinstance(above, ast.Attribute) and table.category(f"numpy.{above.attr}") is not None
            if not member and not isinstance(above, ast.Compare):
                names.discard(node.id)
    return frozenset(name for name in names if flow.loads(name))


def _pure_statement(item: ast.stmt, looker: Pure, blocks: Blocks, own: set[str]) -> bool:
    """Whether a statement of such a function is fine. Raises NoSlice."""
    if isinstance(item, ast.Expr):
        return isinstance(item.value, ast.Constant)
    if isinstance(item, ast.Return):
        looker.visit(item.value, item)
        return True
    if isinstance(item, ast.If):
        looker.visit(item.test, item)
        return all(_pure_statement(inner, looker, blocks, own) for inner in (*item.body, *item.orelse))
    if isinstance(item, (ast.Assign, ast.AugAssign)):
        targets = item.targets if isinstance(item, ast.Assign) else [item.target]
        for target in targets:
            for node in walk(target):
                if isinstance(node, (ast.Attribute, ast.Starred)):
                    return False
                if isinstance(node, ast.Subscript):
                    looker.visit(node.slice, item)
        if not blocks.changes(item) <= own:
            return False
        looker.visit(item.value, item)
        return True
    return isinstance(item, ast.Pass)
