"""Kernel launches, and calls whose code is not here."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Final

from cachelint.collect.log import (
    Launch,
)
from cachelint.index.module import FunctionNode
from cachelint.index.walk import code_of, last_name, walk
from cachelint.infer.expressions import Expressions
from cachelint.infer.symbols import FAIR, STRONG
from cachelint.infer.values import (
    CHEAP,
    CONST,
    DEVICE,
    HOST,
    HOST_VALUE,
    LIVE,
    LOW,
    MEDIUM,
    NONE,
    OPAQUE,
    SAVED,
    UNKNOWN,
    Attr,
    Ext,
    Func,
    Recv,
    Seq,
    Value,
    carried,
    join,
    replace,
)

_POINTER_CALLS: Final = frozenset(
    [
        "load",
        "store",
        "atomic_add",
        "atomic_max",
        "atomic_min",
        "atomic_cas",
        "atomic_xchg",
        "make_block_ptr",
        "make_tensor_descriptor",
        "_experimental_make_tensor_descriptor",
        "async_load",
    ]
)


class Launches(Expressions):
    """What kernels and unseen code do to what they are given."""

    def launch(self, kernel: Value, args: list[Value], kwargs: dict[str, Value], node: ast.AST) -> Value:
        """A kernel launch: buffers of ours that it is given are filled with what it computes."""
        ref = kernel.ref
        everything = [*args, *kwargs.values()]
        spec = _kernel_spec(ref)
        deps = frozenset().union(*(value.deps for value in everything)) if everything else frozenset()
        name = _kernel_name(kernel)
        content = Value(DEVICE, OPAQUE, deps, why=self.why(node, f"filled by the kernel {name}"))
        for value in everything if self.log.phase != "backward" else ():
            for part in _buffers(value):
                if self.is_open_buffer(part):
                    for root in _own(part.roots):
                        self.heap[root] = content if root not in self.heap else join(self.heap[root], content)
        if spec is not None:
            self.kernel_evidence(spec, args, kwargs, node)
            self.launched(spec, args, kwargs, node)
        return HOST_VALUE

    def launched(self, func: Func, args: list[Value], kwargs: dict[str, Value], node: ast.AST) -> None:
        """Note which value a kernel of the project gets under which of its parameters."""
        spec = func.node.args
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        pairs = [pair for pair in (*zip(names, args, strict=False), *kwargs.items()) if pair[1].roots]
        log = self.log
        if pairs:
            log.launches.append(
                Launch(
                    func,
                    tuple(pairs),
                    node,
                    self.frame.module.path,
                    self.frame.name,
                    log.phase,
                    self.tick(),
                    self.path,
                )
            )

    def is_open_buffer(self, value: Value) -> bool:
        """A buffer that holds nothing of the caller's yet: what it is handed to fills it."""
        if not value.roots or not value.kinds & (DEVICE | UNKNOWN):
            return False
        if value.cost != SAVED and not (value.cost == CONST and "blank" in value.tags):
            return False
        if "small" in value.tags and any(root.startswith("p:") for root in value.roots):
            return False  # an input, or something small to pass in its place
        contents = [self.heap[root] for root in value.roots if root in self.heap]
        return all(content.cost not in (LIVE, CHEAP) for content in contents)

    def kernel_evidence(self, func: Func, args: list[Value], kwargs: dict[str, Value], node: ast.AST) -> None:
        """Which symbols the kernel uses as pointers and which as scalars: looked up only if nothing better is known."""
        assert not isinstance(func.node, ast.Lambda)
        names = [a.arg for a in (*func.node.args.posonlyargs, *func.node.args.args)]
        pairs = [*zip(names, args, strict=False), *kwargs.items()]
        for name, value in pairs:
            if value.param is None:
                continue
            symbol = self.symbols.get(value.param)
            if symbol is None:
                continue
            why = self.why(node, f"passed to the kernel {func.node.name} as `{name}`")

            def look(symbol: object = symbol, name: str = name, why: object = why) -> None:
                side = kernel_parameter(func, name)
                if side:
                    strength = STRONG if side == DEVICE else FAIR
                    symbol.note(side, strength, why)  # type: ignore[attr-defined]

            symbol.later.append(look)

    def opaque_result(self, node: ast.AST, name: str, inner: list[Value]) -> Value:
        """What unseen code returned that was given tensors: most likely tensors, unless it is used otherwise."""
        made = self.made(node, f"the result of {name}, whose code is not here", tuple(inner), floor=OPAQUE)
        line = getattr(node, "lineno", 0)
        value = self.symbol(
            f"{name}():{line}",
            "result",
            f"the result of {name}",
            self.frame.module,
            line,
            cost=made.cost,
            deps=made.deps,
            prior=DEVICE,
        )
        if value.sure == LOW and not value.kinds & DEVICE:
            # Nothing spoke on the first pass, when it was not known yet that tensors are given.
            value = replace(value, kinds=DEVICE | value.kinds & NONE)
        return replace(value, roots=made.roots, why=made.why, sure=min(value.sure, MEDIUM) or MEDIUM)

    def fill_opened(self, given: Iterable[Value], named: Callable[[ast.Call], str], node: ast.AST) -> None:
        """Unseen code is given these: it fills the buffers among them that hold nothing yet."""
        if self.log.phase == "backward":
            return  # what backward writes does not make a value of forward any dearer
        for value in given:
            for part in _buffers(value):
                if part.cost in (SAVED, CONST) and self.is_open_buffer(part):
                    name = named(node) if isinstance(node, ast.Call) else "unseen code"
                    content = Value(DEVICE, OPAQUE, part.deps, why=self.why(node, f"filled by {name}"))
                    for root in _own(part.roots):
                        self.heap[root] = content if root not in self.heap else join(self.heap[root], content)

    def call_back(self, given: Iterable[Value], node: ast.AST) -> None:
        """Functions of forward that unseen code is given: it calls them, with what nobody knows."""
        if self.log.phase != "forward":
            return
        for value in given:
            func = value.ref
            if not isinstance(func, Func) or func.env is None or isinstance(func.node, ast.Lambda):
                continue
            if not _stores(func.node) and not _grows(func.node):
                continue  # it keeps nothing
            env = {
                parameter.arg: self.symbol(
                    f"{func.node.name}.{parameter.arg}",
                    "attr",
                    f"parameter `{parameter.arg}` of {func.node.name}",
                    func.module,
                    parameter.lineno,
                    cost=OPAQUE,
                    deps=frozenset(),
                )
                for parameter in (*func.node.args.posonlyargs, *func.node.args.args)
            }
            self.run(func.node, func.module, env, owner=func.owner, closure=func.env)

    def opaque_call(self, func: Value, args: list[Value], kwargs: dict[str, Value], node: ast.AST, name: str) -> Value:
        """Code that we can't see: device if it is given tensors, otherwise nothing decides."""
        everything = [*args, *kwargs.values()]
        for value in everything:
            if isinstance(value.ref, Recv):
                self.log.escapes.append(self.event("*", node, sure=False))
        self.fill_opened(everything, lambda _: name, node)
        self.call_back(everything, node)
        inner = [carried(value) for value in everything]
        if any(value.kinds & DEVICE for value in inner):
            return self.opaque_result(node, name, inner)
        if not any(value.kinds & UNKNOWN for value in inner):
            return Value(HOST, sure=MEDIUM, why=self.why(node, f"{name} is given host values only"))
        made = self.symbol(
            f"{name}():{getattr(node, 'lineno', 0)}",
            "result",
            f"the result of {name}",
            self.frame.module,
            getattr(node, "lineno", 0),
            cost=OPAQUE,
            deps=frozenset().union(*(value.deps for value in inner)),
        )
        if made.param is not None:
            self.symbols[made.param].given = frozenset().union(*(v.deps for v in inner if v.kinds & UNKNOWN))
        return made


def _stores(node: FunctionNode) -> bool:
    """Whether a function assigns to an attribute or to an item of something."""
    return any(isinstance(n, (ast.Attribute, ast.Subscript)) and isinstance(n.ctx, ast.Store) for n in walk(node))


def _grows(node: FunctionNode) -> bool:
    """Whether a function puts something into a container of the function around it."""
    own = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    own |= {n.id for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return any(
        isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and n.func.attr in ("append", "extend", "add", "insert")
        and isinstance(n.func.value, ast.Name)
        and n.func.value.id not in own
        for n in walk(node)
    )


def kernel_parameter(func: Func, name: str) -> int:
    """Whether a kernel uses a parameter as a pointer (DEVICE) or as a scalar (HOST); 0 when it cannot be told."""
    assert not isinstance(func.node, ast.Lambda)
    try:
        node = func.module.whole(func.node)
    except SyntaxError:
        return 0
    for parameter in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        if parameter.arg == name and parameter.annotation is not None and "constexpr" in code_of(parameter.annotation):
            return HOST
    pointers: set[str] = set()
    bases: dict[str, set[str]] = {}
    for item in walk(node):
        if isinstance(item, ast.Call):
            called = last_name(item.func)
            if called in _POINTER_CALLS and item.args:
                pointers |= _leftmost(item.args[0])
            elif called in ("make_block_ptr", "make_tensor_descriptor"):
                for keyword in item.keywords:
                    if keyword.arg == "base":
                        pointers |= _leftmost(keyword.value)
        elif isinstance(item, ast.Assign) and len(item.targets) == 1 and isinstance(item.targets[0], ast.Name):
            bases.setdefault(item.targets[0].id, set()).update(_leftmost(item.value))
    for _ in range(4):
        pointers |= {base for pointer in pointers for base in bases.get(pointer, ())}
    return DEVICE if name in pointers else HOST


def _leftmost(node: ast.expr) -> set[str]:
    while True:
        if isinstance(node, ast.BinOp):
            node = node.left
        elif isinstance(node, ast.Call) and node.args and last_name(node.func) in _POINTER_CALLS:
            node = node.args[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and last_name(node.func) == "to":
            node = node.func.value
        elif isinstance(node, ast.IfExp):
            return _leftmost(node.body) | _leftmost(node.orelse)
        elif isinstance(node, ast.Name):
            return {node.id}
        else:
            return set()


def _kernel_spec(ref: object) -> Func | None:
    if isinstance(ref, Func) and not isinstance(ref.node, ast.Lambda):
        return ref
    return None


def _kernel_name(kernel: Value) -> str:
    ref = kernel.ref
    if isinstance(ref, Func) and not isinstance(ref.node, ast.Lambda):
        return ref.node.name
    return ref.dotted if isinstance(ref, Ext) else ref.name if isinstance(ref, Attr) else "?"


def _own(roots: frozenset[str]) -> list[str]:
    """The storages that this call made: what is filled may on some paths be an input, which holds something already."""
    return [root for root in roots if root.startswith("n")]


def _buffers(value: Value) -> list[Value]:
    ref = value.ref
    if isinstance(ref, Seq):
        return [part for item in ref.each() for part in ([item] if item.ref is None else _buffers_once(item))]
    return [value]


def _buffers_once(value: Value) -> list[Value]:
    return list(value.ref.each()) if isinstance(value.ref, Seq) else [value]
