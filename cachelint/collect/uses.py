"""How backward uses a field: as a tensor, or only for attributes that tensors don't have."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from cachelint.index.walk import parents, walk
from cachelint.infer.optable import operators

if TYPE_CHECKING:
    from cachelint.collect.log import Read
    from cachelint.infer.analysis import Analysis


def only_foreign(field: str, analysis: Analysis) -> bool:
    """Whether every use of ``field`` in backward reads an attribute that tensors don't have (``main_grad``, say)."""
    reads = [r for r in analysis.log.reads if r.field == field and r.phase == "backward"]
    if not reads:
        return False
    foreign = False
    for read in reads:
        if read.scope is None:
            return False
        used = _foreign_use(read.node, parents(read.scope), read.scope)
        if used is None:
            return False
        foreign |= used
    return foreign


def as_tensor(field: str, analysis: Analysis) -> bool:
    """Whether some use of ``field`` is one that only tensors have: an operand of ``@``, a method such as ``.t()``."""
    for read in analysis.log.reads:
        if read.field == field and read.scope is not None:
            above = parents(read.scope)
            node, parent = read.node, above.get(read.node)
            while isinstance(parent, ast.Subscript) and parent.value is node:
                node, parent = parent, above.get(parent)
            if isinstance(parent, ast.Attribute) and parent.attr in _TENSOR_ONLY:
                return True
            if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.MatMult):
                return True
    return False


def only_named(read: Read) -> bool:
    """Whether a read does no more than give the field another name: ``held = self.held``."""
    if read.scope is None:
        return False
    parent = parents(read.scope).get(read.node)
    return (
        isinstance(parent, ast.Assign)
        and parent.value is read.node
        and all(isinstance(target, ast.Name) for target in parent.targets)
    )


_TENSOR_ONLY: Final = frozenset(
    ("t", "T", "mT", "transpose", "permute", "matmul", "mm", "bmm", "contiguous", "unsqueeze")
)


def _foreign_use(node: ast.AST, above: dict[ast.AST, ast.AST], scope: ast.AST) -> bool | None:
    """True for a foreign attribute, False for a test that says nothing, None for use as a tensor."""
    parent = above.get(node)
    if isinstance(parent, ast.Attribute):
        return True if is_foreign(parent.attr) else None
    if isinstance(parent, ast.Compare) or (isinstance(parent, (ast.If, ast.IfExp)) and parent.test is node):
        return False
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id in ("hasattr", "getattr"):
        if len(parent.args) > 1 and isinstance(parent.args[1], ast.Constant) and is_foreign(str(parent.args[1].value)):
            return True
        return None
    if isinstance(parent, ast.Assign) and parent.value is node and len(parent.targets) == 1:
        target = parent.targets[0]
        if isinstance(target, ast.Name):
            uses = [
                _foreign_use(item, above, scope)
                for item in walk(scope)
                if isinstance(item, ast.Name) and item.id == target.id and isinstance(item.ctx, ast.Load)
            ]
            return None if not uses or any(use is None for use in uses) else any(uses)
    return None


def is_foreign(name: str) -> bool:
    """Whether no tensor has an attribute of this name."""
    table = operators()
    return not (
        name in table.host_attrs
        or name in table.alias_attrs
        or name in table.methods
        or name in ("grad", "requires_grad", "grad_fn", "is_leaf")
    )
