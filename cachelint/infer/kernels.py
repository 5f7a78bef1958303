"""Which parameters a kernel of the project writes through."""

from __future__ import annotations

import ast

from cachelint.infer.values import Func

_STORES = frozenset(("store", "atomic_add", "atomic_max", "atomic_min", "atomic_xchg", "atomic_cas", "atomic_and"))
_MODULES = frozenset(("tl", "language", "gl", "ttgl"))


def written_parameters(kernel: Func) -> frozenset[str]:
    """The parameters through which a kernel stores, found by following pointers back from its stores."""
    if isinstance(kernel.node, ast.Lambda):
        return frozenset()
    try:
        node = kernel.module.whole(kernel.node)
    except SyntaxError:
        return frozenset()
    pointers: set[str] = set()
    bases: dict[str, set[str]] = {}
    for item in ast.walk(node):
        if isinstance(item, ast.Call) and _last(item.func) in _STORES:
            pointers |= _stored_to(item)
        elif isinstance(item, (ast.Assign, ast.AugAssign)):
            for target in item.targets if isinstance(item, ast.Assign) else [item.target]:
                if isinstance(target, ast.Name):
                    bases.setdefault(target.id, set()).update(_pointer(item.value))
    known: set[str] = set()
    while pointers - known:
        known |= pointers
        pointers |= {base for pointer in pointers for base in bases.get(pointer, ())}
    parameters = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    return frozenset(parameters & pointers)


def _stored_to(call: ast.Call) -> set[str]:
    """``tl.store(pointer, …)``, or ``descriptor.store(…)``."""
    func = call.func
    if isinstance(func, ast.Attribute) and _last(func.value) not in _MODULES:
        return _pointer(func.value)
    return _pointer(call.args[0]) if call.args else set()


def _pointer(node: ast.expr) -> set[str]:
    """The names that a pointer expression starts from: the left end of sums, the base of a block pointer."""
    while True:
        if isinstance(node, ast.BinOp):
            node = node.left
        elif isinstance(node, ast.Call) and _last(node.func) in ("make_block_ptr", "make_tensor_descriptor", "advance"):
            base = next((k.value for k in node.keywords if k.arg == "base"), node.args[0] if node.args else None)
            if base is None:
                return set()
            node = base
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            node = node.func.value
        elif isinstance(node, ast.IfExp):
            return _pointer(node.body) | _pointer(node.orelse)
        elif isinstance(node, ast.Name):
            return {node.id}
        else:
            return set()


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
