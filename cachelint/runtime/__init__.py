"""The companion runtime: the save-for-backward contract, its arena, and what proves a layer right. Needs torch.

from cachelint.runtime import Builder, Node, Parameter, SaverAware
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cachelint.runtime.arena import Arena
from cachelint.runtime.builder import Builder
from cachelint.runtime.errors import (
    CycleError,
    GradientError,
    GraphError,
    NodeError,
    RuntimeContractError,
    ShapeError,
    UseAfterReset,
)
from cachelint.runtime.graph import Graph, Ref
from cachelint.runtime.node import Node
from cachelint.runtime.parameter import Parameter
from cachelint.runtime.persistent import Persistent
from cachelint.runtime.placement_state import outside_arena
from cachelint.runtime.saver import RecordingSaver, Saver, SaverAware

if TYPE_CHECKING:
    from cachelint.runtime import poison
    from cachelint.runtime.meter import Meter

__all__ = [
    "Arena",
    "Builder",
    "CycleError",
    "GradientError",
    "Graph",
    "GraphError",
    "Meter",
    "Node",
    "NodeError",
    "Parameter",
    "Persistent",
    "RecordingSaver",
    "Ref",
    "RuntimeContractError",
    "Saver",
    "SaverAware",
    "ShapeError",
    "UseAfterReset",
    "outside_arena",
    "poison",
]


def __getattr__(name: str) -> Any:
    """``Meter`` and ``poison`` are loaded when they are asked for."""
    if name == "Meter":
        return importlib.import_module("cachelint.runtime.meter").Meter
    if name == "poison":
        return importlib.import_module("cachelint.runtime.poison")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
