"""What the runtime raises. Every message names the node, so that a person knows where to look."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cachelint.runtime.span import Span


class RuntimeContractError(RuntimeError):
    """Base of everything that the companion runtime raises on purpose."""


class GraphError(RuntimeContractError):
    """The graph can't be built, or was used in the wrong order."""


class CycleError(GraphError):
    """The nodes need each other's results. ``path`` is the cycle, its first name repeated at the end."""

    def __init__(self, path: tuple[str, ...]) -> None:
        super().__init__("the graph has a cycle: " + " -> ".join(path))
        self.path = path


class ShapeError(RuntimeContractError):
    """A tensor has not the shape that was declared for it, or that its gradient must have."""


class NodeError(RuntimeContractError):
    """A node's own forward or backward raised; the original exception is the cause."""

    def __init__(self, node: str, phase: str, detail: str) -> None:
        super().__init__(f"{phase} of node {node}: {detail}")
        self.node = node
        self.phase = phase


class GradientError(RuntimeContractError):
    """A node's backward did not give one gradient per input."""


class UseAfterReset(RuntimeContractError):
    """A tensor was used whose arena memory a reset has taken back. ``node`` and ``field`` say who still held it."""

    def __init__(self, message: str, span: Span | None = None, node: str = "", field: str = "") -> None:
        super().__init__(message)
        self.span = span
        self.node = node
        self.field = field
